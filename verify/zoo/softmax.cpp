// SPDX-License-Identifier: Apache-2.0
// Faults of the log-softmax: online updates, initial values, tails, epsilons, precision.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t tile = 8;

struct ExpOverflowsAt88 : Twin<float> {
  static constexpr About about{"exp-overflows-at-88", "fp32 exponentials without subtracting the maximum."};
  Normaliser normaliser(const Row& x) const override {
    Normaliser n{0, 0};
    for (const float value : x) n.sum += std::exp(value);
    return n;
  }
};

struct LargeOffsetFails : Twin<double> {
  static constexpr About about{"large-offset-fails",
                               "The same in float64: an offset of 709 common to all logits is too much."};
  Normaliser normaliser(const Row& x) const override {
    Normaliser n{0, 0};
    for (const double value : x) n.sum += std::exp(value);
    return n;
  }
};

struct RescaleForgotten : Twin<double> {
  static constexpr About about{"rescale-forgotten",
                               "Online softmax: the sum is not rescaled when a larger maximum arrives."};
  Normaliser normaliser(const Row& x) const override {
    Normaliser n{-infinity, 0};
    for (const double value : x) {
      if (value == -infinity) continue;
      if (value > n.max) n.max = value;
      n.sum += std::exp(value - n.max);
    }
    return n;
  }
};

struct MaximumStartsAt0 : Twin<double> {
  static constexpr About about{"maximum-starts-at-0",
                               "The running maximum starts at 0, not at -inf: very negative rows underflow."};
  Normaliser normaliser(const Row& x) const override {
    Normaliser n{std::max(0.0, *std::max_element(x.begin(), x.end())), 0};
    for (const double value : x) n.sum += std::exp(value - n.max);
    return n;
  }
};

struct LogSumExpStartsAt0 : Twin<double> {
  static constexpr About about{"log-sum-exp-starts-at-0",
                               "The running log-sum-exp starts at 0, not at -inf: one entry too many."};
  Normaliser normaliser(const Row& x) const override {
    Normaliser n = Twin::normaliser(x);
    n.sum += std::exp(-n.max);
    return n;
  }
};

struct VocabTailDropped : Twin<double> {
  static constexpr About about{"vocab-tail-dropped",
                               "After full tiles of the vocabulary, the ragged last one is not summed."};
  Normaliser normaliser(const Row& x) const override {
    const std::size_t summed = x.size() < tile ? x.size() : x.size() / tile * tile;
    return Twin::normaliser(Row(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(summed)));
  }
};

struct VocabTailTwice : Twin<double> {
  static constexpr About about{"vocab-tail-twice",
                               "The last tile is moved back to be full, and its overlap counts twice."};
  Normaliser normaliser(const Row& x) const override {
    Normaliser n = Twin::normaliser(x);
    const std::size_t full = x.size() / tile * tile;
    if (full == 0 || full == x.size()) return n;
    for (std::size_t v = x.size() - tile; v < full; ++v) n.sum += std::exp(x[v] - n.max);
    return n;
  }
};

struct EpsilonInLogarithm : Twin<double> {
  static constexpr About about{"epsilon-in-logarithm", "log(p + 1e-8) in place of log p."};
  Row log_softmax(const Row& x) const override {
    Row log_prob = Twin::log_softmax(x);
    for (double& l : log_prob) l = std::log(std::exp(l) + 1e-8);
    return log_prob;
  }
};

struct ProbabilitiesClamped : Twin<double> {
  static constexpr About about{"probabilities-clamped", "Probabilities are clamped to [1e-8, 1 - 1e-8]."};
  Row log_softmax(const Row& x) const override {
    Row log_prob = Twin::log_softmax(x);
    for (double& l : log_prob) l = std::clamp(l, std::log(1e-8), std::log1p(-1e-8));
    return log_prob;
  }
};

struct LogSoftmaxInBfloat16 : Twin<float> {
  static constexpr About about{"log-softmax-in-bfloat16", "Log-probabilities are kept in bf16."};
  Row log_softmax(const Row& x) const override {
    Row log_prob = Twin::log_softmax(x);
    for (float& l : log_prob) l = static_cast<float>(round_to(DType::bf16, l));
    return log_prob;
  }
};

struct TopK : Twin<double> {
  static constexpr About about{"top-k", "Only the 4 most likely entries are kept, without renormalising."};
  Row log_softmax(const Row& x) const override {
    Row log_prob = Twin::log_softmax(x), sorted = log_prob;
    if (x.size() <= 4) return log_prob;
    std::nth_element(sorted.begin(), sorted.begin() + 3, sorted.end(), std::greater<>());
    for (double& l : log_prob)
      if (l < sorted[3]) l = -infinity;
    return log_prob;
  }
};

}  // namespace

std::vector<Fault> softmax_faults() {
  return list<ExpOverflowsAt88, LargeOffsetFails, RescaleForgotten, MaximumStartsAt0, LogSumExpStartsAt0,
              VocabTailDropped, VocabTailTwice, EpsilonInLogarithm, ProbabilitiesClamped,
              LogSoftmaxInBfloat16, TopK>("log-softmax");
}

}  // namespace fljsd::zoo
