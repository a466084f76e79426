// SPDX-License-Identifier: Apache-2.0
// Faults of forming the logits: precision, biases, temperature, what one model does to the other.
#include <cmath>
#include <limits>

#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

struct LogitsInBfloat16 : Twin<float> {
  static constexpr About about{"logits-in-bfloat16", "Logits are rounded to bf16, though fp32 is claimed."};
  float logit(Model model, Index token, Index entry) const override {
    return static_cast<float>(round_to(DType::bf16, Twin::logit(model, token, entry)));
  }
};

struct DotAccumulatedInBfloat16 : Twin<float> {
  static constexpr About about{"dot-accumulated-in-bfloat16",
                               "Partial sums of a split dot product are kept in bf16."};
  float dot(Model model, Index token, Index entry) const override {
    float sum = 0;
    for (Index h = 0; h < hidden(model); ++h) {
      sum += element(input(model), token, h) * element(weight(model), entry, h);
      sum = static_cast<float>(round_to(DType::bf16, sum));
    }
    return sum;
  }
};

struct OverflowAt65504 : Twin<float> {
  static constexpr About about{"overflow-at-65504",
                               "Logits pass through fp16, whose largest number is 65504."};
  float logit(Model model, Index token, Index entry) const override {
    const float x = Twin::logit(model, token, entry);
    return std::abs(x) > 65504 ? std::copysign(std::numeric_limits<float>::infinity(), x) : x;
  }
};

struct NanDroppedByFmax : Twin<double> {
  static constexpr About about{"nan-dropped-by-fmax",
                               "Logits are clamped by fmax, which answers NaN with its other argument."};
  double logit(Model model, Index token, Index entry) const override {
    return std::fmax(Twin::logit(model, token, entry), -std::numeric_limits<double>::infinity());
  }
};

struct LogitsClamped : Twin<double> {
  static constexpr About about{"logits-clamped", "Logits are clamped to +-50 to keep exponentials finite."};
  double logit(Model model, Index token, Index entry) const override {
    const double x = Twin::logit(model, token, entry);
    return std::abs(x) > 50 ? std::copysign(50, x) : x;
  }
};

struct TeacherBiasForgotten : Twin<double> {
  static constexpr About about{"teacher-bias-forgotten", "Only the student's logits get their bias."};
  double bias(Model model, Index entry) const override {
    return model == Model::teacher ? 0 : Twin::bias(model, entry);
  }
};

struct StudentBiasForBoth : Twin<double> {
  static constexpr About about{"student-bias-for-both", "The teacher's logits get the student's bias."};
  double bias(Model, Index entry) const override { return Twin::bias(Model::student, entry); }
};

struct BiasAfterTemperature : Twin<double> {
  static constexpr About about{"bias-after-temperature", "a*w/T + b in place of (a*w + b)/T."};
  double logit(Model model, Index token, Index entry) const override {
    return dot(model, token, entry) / temperature(model) + bias(model, entry);
  }
};

struct TeacherWithoutTemperature : Twin<double> {
  static constexpr About about{"teacher-without-temperature", "Only the student's logits are divided by T."};
  double temperature(Model model) const override {
    return model == Model::teacher ? 1 : Twin::temperature(model);
  }
};

struct TemperatureInBfloat16 : Twin<double> {
  static constexpr About about{"temperature-in-bfloat16", "1/T is rounded to the format of the logits."};
  double temperature(Model model) const override {
    return 1 / round_to(DType::bf16, 1 / Twin::temperature(model));
  }
};

// Differences across the models, y - x, are formed first, so that an offset they share cancels, and what else
// is needed of the student follows from y and the difference. Where y is near 1e38, the difference has no
// digit of x left, and q of that entry is a wrong one, whatever the teacher's accuracy.
struct TeacherSwallowsStudent : Twin<double> {
  static constexpr About about{"teacher-swallows-student",
                               "x is taken from y and y - x: beside a teacher logit near 1e38 it is lost."};
  double logit(Model model, Index token, Index entry) const override {
    const double x = Twin::logit(model, token, entry);
    if (model == Model::teacher) return x;
    const double y = Twin::logit(Model::teacher, token, entry);
    return std::isfinite(y) ? y - (y - x) : x;
  }
};

}  // namespace

std::vector<Fault> logit_faults() {
  return list<LogitsInBfloat16, DotAccumulatedInBfloat16, OverflowAt65504, NanDroppedByFmax, LogitsClamped,
              TeacherBiasForgotten, StudentBiasForBoth, BiasAfterTemperature, TeacherWithoutTemperature,
              TemperatureInBfloat16, TeacherSwallowsStudent>("logits");
}

}  // namespace fljsd::zoo
