// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/feature.h"

#include <array>

namespace fljsd {
namespace {

struct Entry {
  Feature feature;
  const char* name;
};
constexpr std::array<Entry, feature_count> table = {{
    {Feature::grad, "grad"},
    {Feature::token_loss, "token_loss"},
    {Feature::beta_endpoints, "beta_endpoints"},
    {Feature::temperature, "temperature"},
    {Feature::labels, "labels"},
    {Feature::bias, "bias"},
    {Feature::valid_vocab, "valid_vocab"},
    {Feature::hidden_differ, "hidden_differ"},
    {Feature::reduction_sum, "reduction_sum"},
    {Feature::reduction_none, "reduction_none"},
    {Feature::f16, "f16"},
    {Feature::f32, "f32"},
    {Feature::f64, "f64"},
}};

}  // namespace

const char* name(Feature feature) {
  return table[static_cast<std::size_t>(feature)].name;
}

std::optional<Feature> find_feature(std::string_view name) {
  for (const Entry& entry : table) {
    if (name == entry.name) return entry.feature;
  }
  return std::nullopt;
}

std::span<const Feature> all_features() {
  static const auto features = [] {
    std::array<Feature, feature_count> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = table[i].feature;
    return all;
  }();
  return features;
}

std::string text(const FeatureSet& features) {
  std::string list;
  for (Feature f : all_features()) {
    if (features.has(f)) list += (list.empty() ? "" : ", ") + std::string(name(f));
  }
  return list;
}

FeatureSet needed_features(const Case& c) {
  FeatureSet needed;
  const Problem problem = c.problem();
  const Options& options = c.options;
  if (options.beta == 0 || options.beta == 1) needed.add(Feature::beta_endpoints);
  if (options.temperature != 1) needed.add(Feature::temperature);
  if (c.labels) needed.add(Feature::labels);
  if (c.student_bias || c.teacher_bias) needed.add(Feature::bias);
  if (valid_vocab(problem, options) != problem.vocab()) needed.add(Feature::valid_vocab);
  if (problem.student_input.cols != problem.teacher_input.cols) needed.add(Feature::hidden_differ);
  if (options.reduction == Reduction::sum) needed.add(Feature::reduction_sum);
  if (options.reduction == Reduction::none) {
    needed.add(Feature::reduction_none);
    needed.add(Feature::token_loss);
  }
  const auto add_format = [&](const Tensor& tensor) {
    if (tensor.dtype == DType::f16) needed.add(Feature::f16);
    if (tensor.dtype == DType::f32) needed.add(Feature::f32);
    if (tensor.dtype == DType::f64) needed.add(Feature::f64);
  };
  for (const Tensor* tensor : {&c.student_input, &c.student_weight, &c.teacher_input, &c.teacher_weight}) {
    add_format(*tensor);
  }
  if (c.student_bias) add_format(*c.student_bias);
  if (c.teacher_bias) add_format(*c.teacher_bias);
  return needed;
}

}  // namespace fljsd
