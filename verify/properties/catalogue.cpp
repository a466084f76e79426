// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <stdexcept>

#include "verify/properties/checks.h"

namespace fljsd {
namespace {

constexpr Exactness bitwise = Exactness::bitwise, bounded = Exactness::bounded;

constexpr Property catalogue[] = {
    {"scaled-input-against-weight", "Inputs times 2^k and weights times 2^-k change no logit.", bitwise,
     "values that stay normal", checks::scaled_input_against_weight},
    {"scaled-with-temperature", "Inputs, biases and temperature times 2^k change no logit.", bitwise,
     "values that stay normal", checks::scaled_with_temperature},
    {"flipped-hidden-signs", "Negating hidden columns of both input and weight changes no logit.", bitwise,
     "", checks::flipped_hidden_signs},
    {"poisoned-ignored-tokens", "NaN in ignored tokens changes nothing, and their gradients are 0.", bitwise,
     "a token", checks::poisoned_ignored_tokens},
    {"deleted-ignored-tokens", "Ignoring tokens is deleting them.", bitwise, "",
     checks::deleted_ignored_tokens},
    {"poisoned-padding-entries", "NaN at or past valid_vocab changes nothing, and the gradients there are 0.",
     bitwise, "vocab >= 2", checks::poisoned_padding_entries},
    {"padded-unaligned-layout", "Rows padded with NaN and unaligned addresses change nothing.", bitwise, "",
     checks::padded_unaligned_layout},
    {"rerun", "The same case gives the same answer again, whatever ran in between.", bitwise, "",
     checks::rerun},
    {"inputs-unchanged", "No input is written to.", bitwise, "", checks::inputs_unchanged},
    {"single-entry-vocabulary", "With one vocabulary entry, losses and gradients are 0.", bitwise,
     "finite tensors", checks::single_entry_vocabulary},
    {"undefined-token-is-contained", "NaN in one token leaves the other tokens' losses and gradients alone.",
     bitwise, "a counted token", checks::undefined_token_is_contained},

    {"shifted-logits", "A number added to all logits of a model changes nothing.", bounded,
     "biases to which the number adds exactly", checks::shifted_logits},
    {"permuted-vocabulary", "The order of the vocabulary does not matter.", bounded, "",
     checks::permuted_vocabulary},
    {"permuted-hidden", "The order of the hidden units does not matter.", bounded, "",
     checks::permuted_hidden},
    {"permuted-tokens", "The order of the tokens does not matter.", bounded, "", checks::permuted_tokens},
    {"deleted-padding-entries", "Entries at or past valid_vocab do not exist.", bounded,
     "valid_vocab < vocab", checks::deleted_padding_entries},
    {"removed-entries", "Entries with bias −inf in both models do not exist.", bounded, "",
     checks::removed_entries},
    {"duplicated-vocabulary", "Splitting every entry into two equal halves changes nothing.", bounded, "",
     checks::duplicated_vocabulary},
    {"repeated-batch", "A batch repeated 2^k times has the same mean.", bounded, "", checks::repeated_batch},
    {"split-batch", "The sum over a batch is the sum over its parts.", bounded, "two tokens",
     checks::split_batch},
    {"temperature-in-inputs", "Inputs, biases and temperature times 3 change no logit.", bounded,
     "values to which the factor 3 is exact", checks::temperature_in_inputs},
    {"wider-dtypes", "The same values in a wider format give the same answer.", bounded, "",
     checks::wider_dtypes},
    {"swapped-models", "D_beta(p, q) = D_{1−beta}(q, p).", bounded, "", checks::swapped_models},
    {"equal-models", "Equal models have divergence 0 and gradient 0.", bounded, "", checks::equal_models},
    {"gradient-sums", "The bias gradients, and the rows of the weight gradient, sum to 0.", bounded,
     "finite losses", checks::gradient_sums},

    {"range", "0 <= D <= h(beta).", bounded, "", checks::range},
    {"disjoint-supports", "Models without a common entry have D = h(beta) and gradient 0.", bounded,
     "finite tensors, two valid entries", checks::disjoint_supports},
    {"below-symmetrised-kl", "D <= beta·(1−beta)·(KL(p‖q) + KL(q‖p)).", bounded, "0 < beta < 1",
     checks::below_symmetrised_kl},
    {"concave-in-beta", "D is concave in beta.", bounded, "", checks::concave_in_beta},
    {"slopes-at-the-ends", "D <= beta·KL(p‖q) and D <= (1−beta)·KL(q‖p).", bounded, "0 < beta < 1",
     checks::slopes_at_the_ends},
    {"triangle-inequality", "The square root of D at beta = 1/2 obeys the triangle inequality.", bounded, "",
     checks::triangle_inequality},
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
