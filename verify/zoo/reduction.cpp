// SPDX-License-Identifier: Apache-2.0
// Faults of the reduction over tokens.
#include <algorithm>
#include <numeric>

#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

constexpr std::size_t chunk = 2;

struct DivisorCountsIgnored : Twin<double> {
  static constexpr About about{"divisor-counts-ignored",
                               "batchmean divides by all tokens, ignored ones too."};
  Index count() const override { return problem.tokens(); }
};

struct MeanOfChunkMeans : Twin<double> {
  static constexpr About about{"mean-of-chunk-means",
                               "The mean of the means of chunks, whose last one is shorter."};
  double reduce(const std::vector<double>& losses) const override {
    if (options.reduction != Reduction::batchmean || losses.empty() || problem.labels)
      return Twin::reduce(losses);
    double sum = 0, chunks = 0;
    for (std::size_t first = 0; first < losses.size(); first += chunk, ++chunks) {
      const auto begin = losses.begin() + static_cast<std::ptrdiff_t>(first);
      const std::size_t size = std::min(chunk, losses.size() - first);
      sum +=
          std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(size), 0.0) / static_cast<double>(size);
    }
    return sum / chunks;
  }
};

struct MeanOverElements : Twin<double> {
  static constexpr About about{"mean-over-elements", "batchmean divides by tokens times vocabulary."};
  double divisor() const override {
    const bool mean = options.reduction == Reduction::batchmean;
    return Twin::divisor() * (mean ? static_cast<double>(entries(Model::student)) : 1);
  }
};

struct AllIgnoredIsNan : Twin<double> {
  static constexpr About about{"all-ignored-is-nan", "A batch whose tokens are all ignored gives 0/0."};
  double divisor() const override {
    return options.reduction == Reduction::batchmean ? static_cast<double>(count()) : 1;
  }
};

struct SumDivides : Twin<double> {
  static constexpr About about{"sum-divides", "Reduction `sum` gives the mean."};
  double divisor() const override {
    return options.reduction == Reduction::none ? 1 : static_cast<double>(std::max<Index>(1, count()));
  }
};

struct NoneDividesGradient : Twin<double> {
  static constexpr About about{"none-divides-gradient", "Reduction `none` has the gradients of the mean."};
  double divisor() const override {
    return options.reduction == Reduction::sum ? 1 : static_cast<double>(std::max<Index>(1, count()));
  }
};

struct NoneSums : Twin<double> {
  static constexpr About about{"none-sums", "Reduction `none` gives every token the sum."};
  Result run(const Problem& p, const Options& o, const Request& request) override {
    Result result = Twin::run(p, o, request);
    std::vector<double>& losses = result.token_loss;
    if (o.reduction == Reduction::none)
      std::fill(losses.begin(), losses.end(), std::accumulate(losses.begin(), losses.end(), 0.0));
    return result;
  }
};

struct TemperatureSquaredOnValue : Twin<double> {
  static constexpr About about{"temperature-squared-on-value",
                               "The value is multiplied by T^2, its gradient is not."};
  double token_loss(const Row& log_q, const Row& log_p) const override {
    return Twin::token_loss(log_q, log_p) * options.temperature * options.temperature;
  }
};

}  // namespace

std::vector<Fault> reduction_faults() {
  return list<DivisorCountsIgnored, MeanOfChunkMeans, MeanOverElements, AllIgnoredIsNan, SumDivides,
              NoneDividesGradient, NoneSums, TemperatureSquaredOnValue>("reduction");
}

}  // namespace fljsd::zoo
