// SPDX-License-Identifier: Apache-2.0
#include "verify/tools/golden.h"

namespace fljsd {
namespace {

constexpr GoldenCase table[] = {
    // Every family.
    {"published", "logits that are sums of positive terms and nearly equal",
     "family=published tokens=2 hidden=12 vocab=7 seed=1"},
    {"kaiming", "the plainest case: begin here", "family=kaiming tokens=3 hidden=4 vocab=7 seed=1"},
    {"lm-like", "skewed distributions with a student close to the teacher",
     "family=lm-like tokens=3 hidden=5 vocab=11 seed=1"},
    {"near-identical", "logits 1e-3 apart: D is of the order of 1e-7",
     "family=near-identical tokens=2 hidden=4 vocab=7 seed=1 strength=0.001 dtype=f32"},
    {"peaked", "one entry has nearly all probability, the others e^-30 of it",
     "family=peaked tokens=3 hidden=4 vocab=7 seed=1 strength=30"},
    {"disjoint", "no common entry: D = h(beta), gradients 0, and logarithms of 0",
     "family=disjoint tokens=2 hidden=4 vocab=6 seed=1 strength=inf beta=0.3"},
    {"offset", "logits near 10000 that differ by a few units",
     "family=offset tokens=3 hidden=4 vocab=7 seed=1 strength=10000 dtype=f32"},
    {"subnormal", "subnormal operands that matter", "family=subnormal tokens=2 hidden=4 vocab=5 seed=1"},
    {"wide-exponent", "dot products that cancel six digits",
     "family=wide-exponent tokens=2 hidden=8 vocab=5 seed=1 strength=1000000 dtype=f32"},
    {"integer-grid", "dot products that are exact in fp32 in any order",
     "family=integer-grid tokens=3 hidden=6 vocab=7 seed=1 strength=1"},
    {"padded-vocab", "NaN in rows at or past valid_vocab",
     "family=padded-vocab tokens=2 hidden=4 vocab=9 seed=1 strength=2"},
    {"sizes", "odd sizes, with weight on the last column and the last entry",
     "family=sizes tokens=2 hidden=9 vocab=9 seed=1"},
    {"ignored-labels", "ignored tokens that hold NaN and infinity",
     "family=ignored-labels tokens=6 hidden=3 vocab=5 seed=1 strength=0.5"},
    {"equal-rows", "equal models: exactly 0", "family=equal-rows tokens=2 hidden=4 vocab=7 seed=1"},
    {"overflow", "NaN and infinity in some tokens only", "family=overflow tokens=6 hidden=3 vocab=5 seed=1"},
    {"anti-correlated", "the teacher's logits are the student's negated",
     "family=anti-correlated tokens=3 hidden=4 vocab=7 seed=1 strength=3"},

    // beta.
    {"beta-0", "the endpoint KL(p||q), not the limit of D, which is 0",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=2 beta=0"},
    {"beta-1", "the endpoint KL(q||p)", "family=kaiming tokens=2 hidden=4 vocab=7 seed=2 beta=1"},
    {"beta-0.001", "D close to beta * KL(p||q)",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=2 beta=0.001"},
    {"beta-0.999", "D close to (1 - beta) * KL(q||p)",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=2 beta=0.999"},
    {"beta-tiny", "beta below fp32's resolution next to 1",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=2 beta=9.5367431640625e-07"},
    {"beta-0.1-wide", "an asymmetric mixture of distributions far apart",
     "family=anti-correlated tokens=2 hidden=4 vocab=7 seed=2 strength=10 beta=0.1"},
    {"beta-0-equal", "KL of equal models: exactly 0, gradient 0",
     "family=equal-rows tokens=2 hidden=4 vocab=5 seed=2 beta=0"},

    // Temperature.
    {"temperature-0.07", "sharp distributions; gradients divided by the temperature",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=3 temperature=0.07"},
    {"temperature-3", "1/3 is not a binary fraction; with biases, which are divided as well",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=3 temperature=3 bias=both"},
    {"temperature-2-beta-1", "temperature at an endpoint",
     "family=lm-like tokens=2 hidden=4 vocab=7 seed=3 temperature=2 beta=1"},

    // Reductions and labels.
    {"reduction-sum", "no divisor", "family=kaiming tokens=3 hidden=4 vocab=5 seed=4 reduction=sum"},
    {"reduction-none", "no scalar loss; gradients of the sum",
     "family=kaiming tokens=3 hidden=4 vocab=5 seed=4 reduction=none"},
    {"labels", "the mean divides by counted tokens; ignored ones hold NaN",
     "family=kaiming tokens=6 hidden=3 vocab=5 seed=4 ignored=50 poisoned=1"},
    {"labels-sum", "a sum over counted tokens",
     "family=kaiming tokens=6 hidden=3 vocab=5 seed=4 ignored=50 poisoned=1 reduction=sum"},
    {"labels-none-ignored", "labels that ignore nobody, and ignore_index 0",
     "family=kaiming tokens=3 hidden=3 vocab=5 seed=4 ignored=0 ignore_index=0"},
    {"labels-all-ignored", "0/0 is 0 here",
     "family=kaiming tokens=3 hidden=3 vocab=5 seed=4 ignored=100 poisoned=1"},

    // Biases.
    {"bias-both", "biases of both models", "family=kaiming tokens=2 hidden=4 vocab=7 seed=5 bias=both"},
    {"bias-student", "a bias of the student only",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=5 bias=student beta=0.25"},
    {"bias-teacher", "a bias of the teacher only",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=5 bias=teacher beta=0.25"},
    {"bias-removes-entry", "an entry with probability 0 under both models",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=5 bias=both student_bias[3]=-inf teacher_bias[3]=-inf"},
    {"bias-removes-for-student", "q = 0 < p: 0 * log 0 in the gradient",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=5 bias=both student_bias[3]=-inf"},
    {"bias-removes-for-teacher", "p = 0 < q",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=5 bias=both teacher_bias[3]=-inf beta=0.75"},
    {"kl-infinite", "q = 0 < p at beta = 0: an infinite loss",
     "family=kaiming tokens=2 hidden=4 vocab=5 seed=5 bias=both student_bias[3]=-inf beta=0"},
    {"kl-finite", "q = 0 < p at beta = 1: a finite loss",
     "family=kaiming tokens=2 hidden=4 vocab=5 seed=5 bias=both student_bias[3]=-inf beta=1"},

    // Vocabulary and shapes.
    {"valid-vocab", "a vocabulary cut short; NaN past the cut",
     "family=kaiming tokens=2 hidden=4 vocab=9 seed=6 valid_vocab=6 bias=both student_weight[25]=nan "
     "teacher_weight[30]=nan student_bias[6]=nan teacher_bias[8]=inf"},
    {"valid-vocab-1", "one valid entry: exactly 0",
     "family=kaiming tokens=2 hidden=4 vocab=4 seed=6 valid_vocab=1"},
    {"vocab-1", "one entry: exactly 0", "family=kaiming tokens=3 hidden=4 vocab=1 seed=6"},
    {"vocab-2", "the smallest case that is not 0; D has a closed form",
     "family=kaiming tokens=1 hidden=1 vocab=2 seed=6"},
    {"no-tokens", "an empty batch: loss 0", "family=kaiming tokens=0 hidden=4 vocab=3 seed=6"},
    {"hidden-differ", "hidden sizes 3 and 8",
     "family=kaiming tokens=3 hidden=3 teacher_hidden=8 vocab=7 seed=6"},
    {"hidden-1", "dot products of one term",
     "family=kaiming tokens=3 hidden=1 teacher_hidden=5 vocab=7 seed=6"},

    // Formats.
    {"f16", "fp16 tensors", "family=kaiming tokens=2 hidden=4 vocab=7 seed=7 dtype=f16 bias=both"},
    {"f32", "fp32 tensors", "family=kaiming tokens=2 hidden=4 vocab=7 seed=7 dtype=f32 bias=both"},
    {"f64", "fp64 tensors", "family=kaiming tokens=2 hidden=4 vocab=7 seed=7 dtype=f64 bias=both"},
    {"mixed-formats", "every tensor in another format",
     "family=kaiming tokens=2 hidden=4 vocab=7 seed=7 student_weight=f16 teacher_input=f32 "
     "teacher_weight=f64 "
     "bias=both student_bias=f32 teacher_bias=f16 ignored=0"},
    {"f16-subnormal", "subnormal fp16 operands",
     "family=subnormal tokens=2 hidden=4 vocab=5 seed=7 dtype=f16"},

    // Hard numbers.
    {"gap-1e-1", "logits 0.1 apart", "family=near-identical tokens=2 hidden=4 vocab=7 seed=8 strength=0.1"},
    {"gap-1e-6", "logits 1e-6 apart: D is of the order of 1e-13",
     "family=near-identical tokens=2 hidden=4 vocab=7 seed=8 strength=1e-06 dtype=f64"},
    {"gap-1e-6-beta-0", "the same at an endpoint",
     "family=near-identical tokens=2 hidden=4 vocab=7 seed=8 strength=1e-06 dtype=f64 beta=0"},
    {"peaked-200", "probabilities that underflow in fp32 under both models",
     "family=peaked tokens=3 hidden=4 vocab=7 seed=8 strength=200"},
    {"disjoint-40", "probabilities of e^-40 instead of 0",
     "family=disjoint tokens=2 hidden=4 vocab=6 seed=8 strength=40"},
    {"negative-zero", "zeros of both signs, and ties",
     "family=integer-grid tokens=2 hidden=3 vocab=5 seed=8 strength=2 student_input[0]=-0 teacher_input[1]=0 "
     "student_weight[4]=-0"},

    // No distribution.
    {"nan-token",
     "NaN in one token of the student: its loss and row of the input gradient, and all sums over tokens",
     "family=kaiming tokens=3 hidden=3 vocab=5 seed=9 student_input[4]=nan"},
    {"nan-token-valid-vocab", "NaN in one token, but entries past valid_vocab keep gradient 0, not 0 * NaN",
     "family=kaiming tokens=2 hidden=3 vocab=5 seed=9 valid_vocab=3 student_input[1]=nan"},
    {"nan-weight", "NaN in the teacher's head: NaN everywhere",
     "family=kaiming tokens=2 hidden=3 vocab=5 seed=9 teacher_weight[7]=nan"},
    {"bias-plus-inf", "a logit of +inf has no distribution",
     "family=kaiming tokens=2 hidden=3 vocab=5 seed=9 bias=both teacher_bias[2]=inf"},
    {"all-removed", "every entry removed: no distribution",
     "family=kaiming tokens=2 hidden=3 vocab=3 seed=9 bias=both student_bias[0]=-inf student_bias[1]=-inf "
     "student_bias[2]=-inf"},
};

}  // namespace

std::span<const GoldenCase> golden_cases() {
  return table;
}

}  // namespace fljsd
