// SPDX-License-Identifier: Apache-2.0
// The checks that catalogue.cpp lists. Each has its mathematics above its definition.
#pragma once

#include "verify/properties/property.h"

namespace fljsd::checks {

using Check = PropertyOutcome(const Case& c, const Implementation& implementation, std::uint64_t seed);

// exact.cpp: nothing is rounded differently, so nothing may change.
Check scaled_input_against_weight;
Check scaled_with_temperature;
Check flipped_hidden_signs;
Check poisoned_ignored_tokens;
Check deleted_ignored_tokens;
Check relabelled_tokens;
Check poisoned_padding_entries;
Check padded_unaligned_layout;
Check rerun;
Check inputs_unchanged;
Check single_entry_vocabulary;
Check undefined_token_is_contained;

// rearrangements.cpp: the exact answers of two cases are linear functions of each other.
Check shifted_logits;
Check permuted_vocabulary;
Check permuted_hidden;
Check permuted_tokens;
Check deleted_padding_entries;
Check removed_entries;
Check entries_beyond_range;
Check duplicated_vocabulary;
Check repeated_batch;
Check split_batch;
Check temperature_in_inputs;
Check wider_dtypes;
Check swapped_models;
Check equal_models;
Check gradient_sums;

// known_rows.cpp: rows made to order.
Check two_plausible_entries;

// inequalities.cpp: what limits the divergence.
Check range;
Check disjoint_supports;
Check nested_uniform_supports;
Check below_symmetrised_kl;
Check concave_in_beta;
Check slopes_at_the_ends;
Check triangle_inequality;

}  // namespace fljsd::checks
