// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <stdexcept>

#include "verify/properties/checks.h"

namespace fljsd {
namespace {

constexpr Exactness bitwise = Exactness::bitwise, bounded = Exactness::bounded;

constexpr Property catalogue[] = {
    {"scaled-input-against-weight", "Inputs times 2^k and weights times 2^-k change no logit.", bitwise,
     "an absolute epsilon or threshold on activations, weights or gradients", "values that stay normal",
     checks::scaled_input_against_weight},
    {"scaled-with-temperature", "Inputs, biases and temperature times 2^k change no logit.", bitwise,
     "temperature missing from one model, from the biases or from the gradient", "values that stay normal",
     checks::scaled_with_temperature},
    {"flipped-hidden-signs", "Negating hidden columns of both input and weight changes no logit.", bitwise,
     "hidden columns of input and weight that do not belong together", "", checks::flipped_hidden_signs},
    {"poisoned-ignored-tokens", "NaN in ignored tokens changes nothing, and their gradients are 0.", bitwise,
     "ignored tokens multiplied by 0 instead of left out", "a token", checks::poisoned_ignored_tokens},
    {"deleted-ignored-tokens", "Ignoring tokens is deleting them.", bitwise,
     "a mean that divides by all tokens", "", checks::deleted_ignored_tokens},
    {"relabelled-tokens", "Labels other than ignore_index, and ignore_index itself, may be any numbers.",
     bitwise, "labels narrowed to 32 bits; negative labels, or only -100, taken to be ignored", "a token",
     checks::relabelled_tokens},
    {"poisoned-padding-entries", "NaN at or past valid_vocab changes nothing, and the gradients there are 0.",
     bitwise, "padded vocabulary rows that enter a softmax, or a gradient as 0·NaN", "vocab >= 2",
     checks::poisoned_padding_entries},
    {"padded-unaligned-layout", "Rows padded with NaN and unaligned addresses change nothing.", bitwise,
     "a row stride taken to be the number of columns, or aligned loads", "", checks::padded_unaligned_layout},
    {"rerun", "The same case gives the same answer again, whatever ran in between.", bitwise,
     "state kept between calls, or output that was not initialised", "", checks::rerun},
    {"inputs-unchanged", "No input is written to.", bitwise, "logits or gradients written over an input", "",
     checks::inputs_unchanged},
    {"single-entry-vocabulary", "With one vocabulary entry, losses and gradients are 0.", bitwise,
     "an epsilon inside a logarithm, or a clamped probability", "finite tensors",
     checks::single_entry_vocabulary},
    {"undefined-token-is-contained", "NaN in one token leaves the other tokens' losses and gradients alone.",
     bitwise, "NaN that leaks into other tokens, or is replaced by a number", "a counted token",
     checks::undefined_token_is_contained},

    {"shifted-logits", "A number added to all logits of a model changes nothing.", bounded,
     "exponentials without subtracting the maximum; a bias added to one model only",
     "biases to which the number adds exactly", checks::shifted_logits},
    {"permuted-vocabulary", "The order of the vocabulary does not matter.", bounded,
     "a ragged last tile of the vocabulary that is dropped or read twice", "", checks::permuted_vocabulary},
    {"permuted-hidden", "The order of the hidden units does not matter.", bounded,
     "a ragged last tile of the hidden size that is dropped or read twice", "", checks::permuted_hidden},
    {"permuted-tokens", "The order of the tokens does not matter.", bounded,
     "a token's result that depends on its neighbours, such as a ragged last block", "",
     checks::permuted_tokens},
    {"deleted-padding-entries", "Entries at or past valid_vocab do not exist.", bounded,
     "valid_vocab ignored, or applied to one model only", "valid_vocab < vocab",
     checks::deleted_padding_entries},
    {"removed-entries", "Entries with bias −inf in both models do not exist.", bounded,
     "0·(−inf) from a removed entry; clamped probabilities", "", checks::removed_entries},
    {"entries-beyond-range", "Entries whose logits overflow downwards in both models do not exist.", bounded,
     "a difference of two infinities that is NaN, or that fmax turns into a number", "",
     checks::entries_beyond_range},
    {"duplicated-vocabulary", "Splitting every entry into two equal halves changes nothing.", bounded,
     "top-k truncation; a normaliser that misses entries", "", checks::duplicated_vocabulary},
    {"repeated-batch", "A batch repeated 2^k times has the same mean.", bounded,
     "a wrong divisor, or a mean of the means of chunks", "", checks::repeated_batch},
    {"split-batch", "The sum over a batch is the sum over its parts.", bounded,
     "a weight gradient that forgets, or overwrites, blocks of tokens", "two tokens", checks::split_batch},
    {"temperature-in-inputs", "Inputs, biases and temperature times 3 change no logit.", bounded,
     "temperature squared on the value but not on the gradient", "values to which the factor 3 is exact",
     checks::temperature_in_inputs},
    {"wider-dtypes", "The same values in a wider format give the same answer.", bounded,
     "a format decoded wrongly; results that depend on the format of storage", "", checks::wider_dtypes},
    {"swapped-models", "D_beta(p, q) = D_{1−beta}(q, p).", bounded,
     "beta applied to the wrong model; a mixture that is not p, q weighted by beta, 1−beta", "",
     checks::swapped_models},
    {"equal-models", "Equal models have divergence 0 and gradient 0.", bounded,
     "a missing teacher entropy (cross-entropy called KL); probabilities subtracted late", "",
     checks::equal_models},
    {"gradient-sums", "The bias gradients, and the rows of the weight gradient, sum to 0.", bounded,
     "the gradient (1−beta)·(q − M); a row constant KL(q‖M) that is wrong", "finite losses",
     checks::gradient_sums},
    {"two-plausible-entries", "With two plausible entries, losses and gradients are those of two numbers.",
     bounded,
     "a gradient of zeros where the rounding of bf16 logits would excuse it, as on nearly equal models",
     "two valid entries", checks::two_plausible_entries},

    {"range", "0 <= D <= h(beta).", bounded,
     "negative divergence from cancellation; a logarithm to another base", "", checks::range},
    {"disjoint-supports", "Models without a common entry have D = h(beta) and gradient 0.", bounded,
     "NaN from log 0; probabilities clamped to an epsilon", "finite tensors, two valid entries",
     checks::disjoint_supports},
    {"nested-uniform-supports",
     "Uniform models on nested sets of entries have a loss and a gradient in closed form.", bounded,
     "beta exchanged with 1−beta, or student with teacher, throughout", "two valid entries, finite inputs",
     checks::nested_uniform_supports},
    {"below-symmetrised-kl", "D <= beta·(1−beta)·(KL(p‖q) + KL(q‖p)).", bounded,
     "KL direction exchanged in one of the two parts; endpoints clamped to an epsilon", "0 < beta < 1",
     checks::below_symmetrised_kl},
    {"concave-in-beta", "D is concave in beta.", bounded,
     "a mixture taken in log space; beta rounded to fewer bits", "", checks::concave_in_beta},
    {"slopes-at-the-ends", "D <= beta·KL(p‖q) and D <= (1−beta)·KL(q‖p).", bounded,
     "endpoint conventions exchanged, or replaced by a clamp of beta", "0 < beta < 1",
     checks::slopes_at_the_ends},
    {"triangle-inequality", "The square root of D at beta = 1/2 obeys the triangle inequality.", bounded,
     "a divergence that is some other function of p and q", "", checks::triangle_inequality},
};

}  // namespace

std::span<const Property> properties() {
  return catalogue;
}

const Property& find_property(std::string_view name) {
  std::string known;
  for (const Property& property : catalogue) {
    if (property.name == name) return property;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", property.name);
  }
  throw std::invalid_argument(fmt::format("there is no property '{}'; the catalogue has {}.", name, known));
}

}  // namespace fljsd
