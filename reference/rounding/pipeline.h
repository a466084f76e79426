// SPDX-License-Identifier: Apache-2.0
// A pipeline's arithmetic as data: one switch for each place where an implementation may round.
//
//   activations, weights --products--> logits --1/temperature--> scaled logits --log-softmax--> log q, log p
//     --formula--> token losses --reduction--> loss
//   gradient of log q --log-softmax backward--> gradient of the scaled logits --1/temperature--> dlogits
//     --products--> gradients of student input, weight and bias
//
// A default Pipeline is float64 throughout. The published implementations are values of this type
// (models.h), and so is anything between two of them: that is how an error is attributed to single steps.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reference/dtype.h"

namespace fljsd {

// The format that values are kept in after a step. `input` is the common format of the tensors of the model
// at hand: that of its activations and weight when they agree, else the wider one (f32 for bf16 with f16).
// With f32 tensors, "stored as the input" therefore rounds nothing beyond fp32, and with f64 tensors nothing
// at all.
enum class Storage { float64, fp32, bf16, input };
const char* name(Storage storage);

// The format that `storage` means where `input` is the format of the model's tensors.
DType dtype_of(Storage storage, DType input);

// The format of what two tensors give together: theirs if they agree, else the wider one, f32 for bf16 with
// f16.
DType common_dtype(DType a, DType b);

enum class Arithmetic { float64, fp32 };
const char* name(Arithmetic arithmetic);

// How the products that give the logits are summed, where they are not summed in float64.
enum class LogitSum {
  // One fused multiply-add for each k, ascending (ordered_product.h).
  ordered,
  // As Hopper's tensor cores do, bit for bit: blocks of 16 aligned and truncated (reference/tensor_core.h),
  // one
  // accumulator, k ascending. Operands other than two of bf16 or two of fp16 are summed as `ordered`.
  hopper_tensor_core,
};
const char* name(LogitSum sum);

// How a row's divergence and its gradient are written down. In exact arithmetic all are the same. With
// log M = log(beta·p + (1−beta)·q), d = log p − log q, s = d + ln(beta/(1−beta)), softplus(s) = ln(1 + e^s):
enum class Formula {
  // The specification, divergence.h: every term is a function of d that vanishes at d = 0.
  difference,
  // D = Σ beta·p·log p + (1−beta)·q·log q − M·log M;  gradient of log q: g = (1−beta)·q·(log q − log M);
  // through the log-softmax: g − q·Σ g. How a fused kernel writes it.
  log_mixture,
  // D = beta·Σ p·(log p − log M) + (1−beta)·Σ q·(log q − log M) as a graph of elementwise operations, and
  // that graph differentiated node by node, in the order in which automatic differentiation adds the parts
  // up.
  log_mixture_autograd,
  // kappa = Σ q·softplus(s);  D = h(beta) − beta·Σ p·softplus(−s) − (1−beta)·kappa;
  // gradient of the logits: (1−beta)·q·(kappa − softplus(s)).
  softplus,
  // D, kappa and both normalisers from the mergeable sums of chernoff.h (its default plan for this beta),
  // then the gradient in softplus form, swept again where the first sweep's certificate finds kappa off. Its
  // sums are fp32 by design: `arithmetic` and `log_softmax` do not apply.
  one_pass,
};
const char* name(Formula formula);

// How the gradients of weight and bias are summed over tokens.
enum class Chunking {
  // One sum over all tokens, in the format of the accumulation.
  whole_batch,
  // Tokens in chunks of next_power_of_two(ceil(tokens / ceil(vocab / student_hidden))). Each chunk's sum is
  // rounded to the input's format and added to the running gradient, which is kept in that format as well:
  // two roundings a chunk.
  by_sizes,
};
const char* name(Chunking chunking);

// Tokens in one chunk of Chunking::by_sizes; at least 1.
Index chunk_tokens(Index tokens, Index vocab, Index student_hidden);

struct Pipeline {
  // Logits. float64: products summed in float64. Anything else: operands taken as fp32 (f64 tensors are
  // rounded first), products summed in fp32 as logit_sum says, the bias added in fp32, the result stored.
  Storage logits = Storage::float64;
  LogitSum logit_sum = LogitSum::ordered;
  // After division by the temperature; in fp32 that is a multiplication by its rounded reciprocal, as GPU
  // libraries do. Nothing happens at temperature 1.
  Storage scaled_logits = Storage::float64;

  // x − max − log Σ e^{x − max}. float64: in float64. Anything else: in fp32, then stored. The difference d
  // is taken before max and log-sum are added up unless what is stored is narrower than fp32: then it is
  // the difference of the two stored values.
  Storage log_softmax = Storage::float64;

  Arithmetic arithmetic = Arithmetic::float64;  // of the formula, its sums over the vocabulary, and the loss
  Formula formula = Formula::difference;
  // true: entries whose probability is 0 contribute 0, and ignored tokens are not read.
  // false: 0·(−inf) is computed and is NaN, so a logit of −inf, or an entry so unlikely that both models'
  // fp32 probabilities underflow, gives NaN; and the gradient of an ignored token is computed and multiplied
  // by 0, so NaN or infinity in an ignored token's logits spreads to the gradients. That is what the
  // published implementations do.
  bool guarded = true;

  Storage log_softmax_grad = Storage::float64;    // only log_mixture_autograd has this tensor
  Storage scaled_logits_grad = Storage::float64;  // gradient before it is divided by the temperature
  Storage dlogits = Storage::float64;  // gradient of the logits, reduction factor and temperature included

  Arithmetic accumulation = Arithmetic::float64;  // of the gradients' products
  Chunking chunking = Chunking::whole_batch;

  Storage loss = Storage::float64;       // the reduced loss; with Reduction::none the losses of the tokens
  Storage gradients = Storage::float64;  // input: each in the format of the tensor that it belongs to

  bool operator==(const Pipeline&) const = default;
};

// The switches in groups: the steps of an attribution, in the order in which they are taken. The formula is
// exchanged while everything after the logits is still float64, where all formulas agree (but for one_pass,
// whose sums are fp32). That by itself costs nothing; it makes every later step show what its rounding costs
// in the formula that the pipeline uses.
enum class Step { logits, formula, log_softmax, arithmetic, dlogits, accumulation, result };
std::span<const Step> all_steps();
const char* name(Step step);

// `pipeline` with the switches of one step set as in `target`.
Pipeline with_step(Pipeline pipeline, const Pipeline& target, Step step);

// A short description of what one step of the pipeline does, for tables: "logits summed in fp32, stored in
// the input's format".
std::string describe(const Pipeline& pipeline, Step step);

// From float64 to `target`, one step at a time: element i has the first i + 1 of all_steps() set as in
// `target` and the rest exact, so the last element is `target` itself. The error that element i adds to that
// of element i − 1 is what its step costs, given the steps before it.
std::vector<Pipeline> waterfall(const Pipeline& target);

}  // namespace fljsd
