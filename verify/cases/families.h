// SPDX-License-Identifier: Apache-2.0
// The input families: a numbered table of generators, in the manner of LAPACK's test matrix types.
//
// A case is a pure function of its CaseSpec: every element is computed from (seed, tensor, index) by integer
// operations and by + - * / sqrt in double (random.h), so it is the same on every machine and for any number
// of threads, and a sample of the tokens can be made without the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/cases/case.h"

namespace fljsd {

// Everything that determines a generated case.
struct CaseSpec {
  int family = 1;  // number in families()
  Index tokens = 8;
  Index student_hidden = 16;
  Index teacher_hidden = 0;  // 0: as student_hidden
  Index vocab = 32;
  std::uint64_t seed = 0;
  DType dtype = DType::bf16;  // of every tensor; values are rounded to it once
  // The family's own parameter, see Family::strength. Absent: derived from the seed.
  std::optional<double> strength;
  // Adds biases to both models where the family does not already have them. They keep what the family
  // promises: near-identical models, for example, get the same bias.
  bool with_bias = false;
  // Taken over unchanged, except that padded-vocab fills in valid_vocab where it is absent.
  Options options;
  // Only these rows of the inputs and labels, in this order, each equal to that row of the whole case;
  // `tokens` still is the size of the whole case. Absent: all rows.
  std::optional<std::vector<Index>> token_rows;
};

// Whether a family's true loss and gradients are finite.
enum class Finiteness {
  always,      // for every beta in [0, 1]
  inside,      // for 0 < beta < 1; at the endpoints the KL divergence may be +inf
  no_promise,  // NaN and infinity are part of the case
};

// A family's parameter: how gently or violently it does what it does.
struct Strength {
  std::string_view meaning;              // with its unit
  double min, max;                       // allowed values
  double (*from_seed)(const CaseSpec&);  // the value where the spec has none; seeds cover the usual range
};

struct Family {
  int number;                    // 1 .. 16, its place in the table
  std::string_view name;         // kebab-case
  std::string_view description;  // one sentence: what it holds and what that stresses
  Finiteness finiteness;
  std::optional<Strength> strength;
  // The case without provenance; called by make_case() with a checked spec and the resolved strength (0 for a
  // family that has none).
  Case (*make)(const CaseSpec&, double strength);
};

// The table, ordered by number.
std::span<const Family> families();

// By number, or by name or number as text; throws InvalidProblem with a sentence that lists what exists.
const Family& find_family(int number);
const Family& find_family(std::string_view name_or_number);

// The value that make_case() uses: spec.strength, else the one derived from the seed; 0 for a family without
// parameter. Throws InvalidProblem for a value outside what the family allows.
double resolved_strength(const CaseSpec& spec);

// Generates the case, with the spec in its provenance. Throws InvalidProblem, one sentence, for a spec that
// cannot be made (sizes, strength, token_rows or options out of range). Memory: the tensors and a few rows.
Case make_case(const CaseSpec& spec);

// Sizes at which tiled code goes wrong: 1, 2, primes, and each of the usual tile sizes 8 … 256 with its two
// neighbours; ascending. For fuzzers that choose tokens, hidden sizes and vocab.
std::span<const Index> awkward_sizes();

}  // namespace fljsd
