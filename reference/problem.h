// SPDX-License-Identifier: Apache-2.0
// What is computed: the tensors, the options, and the one place that refuses bad input.
//
//   student logits  x = (student_input · student_weightᵀ + student_bias) / temperature      [tokens, vocab]
//   teacher logits  y = (teacher_input · teacher_weightᵀ + teacher_bias) / temperature      [tokens, vocab]
//   q = softmax(x), p = softmax(y), M = beta·p + (1−beta)·q, over v < valid_vocab
//   D = beta·KL(p‖M) + (1−beta)·KL(q‖M) for 0 < beta < 1
//   D = KL(p‖q) for beta = 0,  KL(q‖p) for beta = 1
//
// docs/math.md states the semantics in full. The definitions are copied nowhere else.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/dtype.h"

namespace fljsd {

// A row-major matrix somebody else owns. Element (r, c) is element r * row_stride + c of `data`, so
// row_stride is in elements and at least `cols`. The data need not be aligned.
struct MatrixView {
  DType dtype = DType::f64;
  const void* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Index row_stride = 0;

  double operator()(Index r, Index c) const { return load(dtype, data, r * row_stride + c); }
  // Columns [first, first + count) of row r, decoded exactly into `out`.
  void row(Index r, Index first, Index count, double* out) const {
    load_run(dtype, data, r * row_stride + first, count, out);
  }
  void row(Index r, Index first, Index count, float* out) const {
    load_run(dtype, data, r * row_stride + first, count, out);
  }
};

// A packed vector somebody else owns.
struct VectorView {
  DType dtype = DType::f64;
  const void* data = nullptr;
  Index size = 0;

  double operator()(Index i) const { return load(dtype, data, i); }
};

// The tensors. Formats may differ from tensor to tensor, and the two hidden sizes may differ.
struct Problem {
  MatrixView student_input;                             // [tokens, student_hidden]
  MatrixView student_weight;                            // [vocab, student_hidden]
  MatrixView teacher_input;                             // [tokens, teacher_hidden]
  MatrixView teacher_weight;                            // [vocab, teacher_hidden]
  std::optional<VectorView> student_bias;               // [vocab]; -inf removes a token from the vocabulary
  std::optional<VectorView> teacher_bias;               // [vocab]
  std::optional<std::span<const std::int64_t>> labels;  // [tokens]; only compared with Options::ignore_index

  Index tokens() const { return student_input.rows; }
  Index vocab() const { return student_weight.rows; }
};

// batchmean divides the sum by the number of tokens that are not ignored; `none` has no scalar loss, only the
// losses per token, and its gradients are those of `sum`.
enum class Reduction { batchmean, sum, none };

const char* name(Reduction reduction);
// Throws InvalidProblem for any other text.
Reduction parse_reduction(const std::string& text);

struct Options {
  double beta =
      0.5;  // in [0, 1]; the endpoints are the two KL divergences, not the limits of D (which are 0)
  double temperature = 1.0;  // > 0 and finite; divides both models' logits
  Reduction reduction = Reduction::batchmean;
  std::int64_t ignore_index = -100;
  std::optional<Index> valid_vocab;  // vocabulary entries at or past it do not exist; absent: all of vocab
};

// Thrown by validate(): what() is one sentence that names the field, its value and what is allowed.
class InvalidProblem : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Refuses what has no meaning: mismatched shapes, a null tensor, beta outside [0, 1] or NaN, temperature that
// is not positive and finite, a wrong number of labels, valid_vocab outside [1, vocab], an empty vocabulary
// or hidden size. Zero tokens are a valid, empty batch: loss 0. NaN and infinity inside tensors are values,
// not errors.
void validate(const Problem& problem, const Options& options);

// valid_vocab with its default filled in.
Index valid_vocab(const Problem& problem, const Options& options);

// Whether token t takes part: it has no label, or its label is not ignore_index.
bool is_counted(const Problem& problem, const Options& options, Index token);
Index count_tokens(const Problem& problem, const Options& options);

// What the sum over tokens is divided by: the number of counted tokens for batchmean (1 when there are none,
// so that the empty batch has loss 0), else 1.
Index reduction_divisor(const Options& options, Index counted);

}  // namespace fljsd
