// SPDX-License-Identifier: Apache-2.0
// Recipes without what a candidate lacks.
#include "verify/fuzz/examine.h"

namespace fljsd {

Recipe adapted(Recipe recipe, const FeatureSet& lacks) {
  Options& options = recipe.spec.options;
  CaseSpec& spec = recipe.spec;
  if (lacks.has(Feature::beta_endpoints) && (options.beta == 0 || options.beta == 1)) options.beta = 0.5;
  if (lacks.has(Feature::temperature)) options.temperature = 1;
  if (lacks.has(Feature::labels)) {
    recipe.ignored_percent.reset();
    recipe.poisoned = false;
  }
  if (lacks.has(Feature::bias)) recipe.biases = Biases::family;
  if (lacks.has(Feature::valid_vocab)) options.valid_vocab.reset();
  if (lacks.has(Feature::hidden_differ)) spec.teacher_hidden = 0;
  if (lacks.has(Feature::reduction_sum) && options.reduction == Reduction::sum)
    options.reduction = Reduction::batchmean;
  if ((lacks.has(Feature::reduction_none) || lacks.has(Feature::token_loss)) &&
      options.reduction == Reduction::none)
    options.reduction = Reduction::batchmean;
  const auto lacks_format = [&](DType dtype) {
    return (dtype == DType::f16 && lacks.has(Feature::f16)) ||
           (dtype == DType::f32 && lacks.has(Feature::f32)) ||
           (dtype == DType::f64 && lacks.has(Feature::f64));
  };
  if (lacks_format(spec.dtype)) spec.dtype = DType::bf16;
  std::erase_if(recipe.dtypes, [&](const auto& entry) { return lacks_format(entry.second); });
  return recipe;
}

}  // namespace fljsd
