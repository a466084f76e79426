// SPDX-License-Identifier: Apache-2.0
// Faults of the divergence of one token: mixture, direction, endpoints, zeros.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

bool inside(double beta) {
  return beta > 0 && beta < 1;
}

struct BetaSwapped : Twin<double> {
  static constexpr About about{"beta-swapped", "beta belongs to the student in place of the teacher."};
  double beta() const override { return inside(options.beta) ? 1 - options.beta : options.beta; }
};

struct MixtureSwapped : Twin<double> {
  static constexpr About about{"mixture-swapped", "M = (1-beta)*p + beta*q under the right outer weights."};
  double fraction(Model model) const override { return model == Model::student ? beta() : 1 - beta(); }
  double share(Model model) const override {
    if (!inside(beta())) return Twin::share(model);
    return model == Model::student ? 1 - beta() : beta();
  }
  double score(Model own, double log_own, double log_other) const override {
    return inside(beta()) ? Twin::score(own, log_own, log_other) : log_own - log_other;
  }
};

struct MixtureInLogSpace : Twin<double> {
  static constexpr About about{"mixture-in-log-space", "log M = beta*log p + (1-beta)*log q."};
  double score(Model own, double log_own, double log_other) const override {
    const double others = 1 - fraction(own);
    return others == 0 ? 0 : others * (log_own - log_other);  // log(own/M)
  }
};

struct BetaIgnored : Twin<double> {
  static constexpr About about{"beta-ignored", "Every inner beta is taken to be 1/2."};
  double beta() const override { return inside(options.beta) ? 0.5 : options.beta; }
};

struct EndpointClamped : Twin<double> {
  static constexpr About about{"endpoint-clamped", "beta is clamped to [1e-6, 1 - 1e-6]."};
  double beta() const override { return std::clamp(options.beta, 1e-6, 1 - 1e-6); }
};

struct EndpointIsLimit : Twin<double> {
  static constexpr About about{
      "endpoint-is-limit", "beta = 0 and 1 give the limit of D, which is 0, in place of the divergences."};
  double share(Model model) const override { return fraction(model); }
};

struct KlDirectionSwapped : Twin<double> {
  static constexpr About about{"kl-direction-swapped", "beta = 0 gives KL(q||p) and beta = 1 KL(p||q)."};
  double beta() const override { return inside(options.beta) ? options.beta : 1 - options.beta; }
};

struct TeacherEntropyMissing : Twin<double> {
  static constexpr About about{"teacher-entropy-missing", "A cross-entropy -sum p*log M is called KL(p||M)."};
  double score(Model own, double log_own, double log_other) const override {
    const double right = Twin::score(own, log_own, log_other);
    return own == Model::teacher && log_own > -infinity ? right - log_own : right;
  }
};

struct LogarithmToBase2 : Twin<double> {
  static constexpr About about{"logarithm-to-base-2", "Fast exp2 and log2, and the loss stays in bits."};
  double token_loss(const Row& log_q, const Row& log_p) const override {
    return Twin::token_loss(log_q, log_p) / std::log(2.0);
  }
};

// The difference of two logits of −inf is NaN. Biases are looked at first, so only products that overflow get
// that far.
struct OverflowedEntrySilencesToken : Twin<float> {
  static constexpr About about{
      "overflowed-entry-silences-token",
      "An entry that overflows to -inf in both models makes D NaN, and fmax(D, 0) makes that 0."};
  float token_loss(const Row& log_q, const Row& log_p) const override {
    const bool biased = problem.student_bias || problem.teacher_bias;
    for (std::size_t v = 0; v < log_q.size() && !biased; ++v)
      if (std::isinf(log_q[v]) && std::isinf(log_p[v])) return 0;
    return Twin::token_loss(log_q, log_p);
  }
};

struct ZeroTimesMinusInfinity : Twin<double> {
  static constexpr About about{"zero-times-minus-infinity",
                               "0*log 0 of masked entries: [0, -inf] against [0, 0] has D = 0.2157616."};
  double term(double log_prob, double score) const override { return std::exp(log_prob) * score; }
};

struct MixtureUnderflows : Twin<float> {
  static constexpr About about{"mixture-underflows",
                               "log M of two probabilities that underflow in fp32: [0, -120] twice."};
  float score(Model own, float log_own, float log_other) const override {
    if (!inside(beta())) return Twin::score(own, log_own, log_other);
    const auto mine = static_cast<float>(fraction(own));
    return log_own - std::log(mine * std::exp(log_own) + (1 - mine) * std::exp(log_other));
  }
};

struct NegativeDivergence : Twin<float> {
  static constexpr About about{"negative-divergence",
                               "Terms of either sign are summed in fp16; near p = q the sum is negative."};
  float term(float log_prob, float score) const override {
    return static_cast<float>(round_to(DType::f16, Twin::term(log_prob, score)));
  }
};

struct SmallProbabilitiesSkipped : Twin<double> {
  static constexpr About about{"small-probabilities-skipped",
                               "Entries below 1e-6 are left out to save time."};
  double term(double log_prob, double score) const override {
    return std::exp(log_prob) < 1e-6 ? 0 : Twin::term(log_prob, score);
  }
};

struct NanToNum : Twin<double> {
  static constexpr About about{"nan-to-num",
                               "max(D, 0) by fmax, or nan_to_num: a NaN loss is answered by 0."};
  double token_loss(const Row& log_q, const Row& log_p) const override {
    return std::fmax(Twin::token_loss(log_q, log_p), 0);
  }
};

struct LossInBfloat16 : Twin<float> {
  static constexpr About about{"loss-in-bfloat16", "Losses are rounded to bf16 before their mean is taken."};
  float token_loss(const Row& log_q, const Row& log_p) const override {
    return static_cast<float>(round_to(DType::bf16, Twin::token_loss(log_q, log_p)));
  }
};

}  // namespace

std::vector<Fault> divergence_faults() {
  return list<BetaSwapped, MixtureSwapped, MixtureInLogSpace, BetaIgnored, EndpointClamped, EndpointIsLimit,
              KlDirectionSwapped, TeacherEntropyMissing, LogarithmToBase2, OverflowedEntrySilencesToken,
              ZeroTimesMinusInfinity, MixtureUnderflows, NegativeDivergence, SmallProbabilitiesSkipped,
              NanToNum, LossInBfloat16>("divergence");
}

}  // namespace fljsd::zoo
