// SPDX-License-Identifier: Apache-2.0
// What an implementation may lack. A case that needs something a candidate lacks is skipped, and counted as
// skipped.
#pragma once

#include <bitset>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "verify/cases/case.h"

namespace fljsd {

enum class Feature {
  grad,            // gradients of student input and weight (and of the bias, where there is one)
  token_loss,      // losses per token beside the reduced loss
  beta_endpoints,  // beta = 0 and beta = 1
  temperature,     // any other than 1
  labels,          // labels and ignore_index
  bias,            // either model's bias
  valid_vocab,     // fewer entries than the weights have rows
  hidden_differ,   // student_hidden != teacher_hidden
  reduction_sum,
  reduction_none,  // needs token_loss as well: there is no scalar
  f16,             // tensors in that format; bf16 is not optional
  f32,
  f64,
};
inline constexpr std::size_t feature_count = 13;

const char* name(Feature feature);
// Null for an unknown name.
std::optional<Feature> find_feature(std::string_view name);
std::span<const Feature> all_features();

class FeatureSet {
 public:
  FeatureSet() = default;
  FeatureSet(std::initializer_list<Feature> features) {
    for (Feature f : features) add(f);
  }
  void add(Feature f) { bits_.set(static_cast<std::size_t>(f)); }
  bool has(Feature f) const { return bits_.test(static_cast<std::size_t>(f)); }
  bool empty() const { return bits_.none(); }
  FeatureSet operator&(const FeatureSet& other) const {
    FeatureSet both;
    both.bits_ = bits_ & other.bits_;
    return both;
  }
  bool operator==(const FeatureSet&) const = default;

 private:
  std::bitset<feature_count> bits_;
};

// Names separated by ", ".
std::string text(const FeatureSet& features);

// What the tensors and options of a case need; grad and token_loss depend on what is asked, so they are not
// among them unless the reduction is none, which has nothing but losses per token.
FeatureSet needed_features(const Case& c);

}  // namespace fljsd
