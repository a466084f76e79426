// SPDX-License-Identifier: Apache-2.0
// The float64 tier of linear_jsd: blocked matrix products on decoded tiles, then the spec row by row.
//
// For a block of tokens, the logits of both models are held in full, because the spec reads a row several
// times; then the student's are overwritten by dD/dlogits. Weights are only ever decoded a tile at a time.
//
//   x[tokens, vocab]   = (input · weightᵀ + bias) / temperature         pieces of vocab are independent
//   dX[tokens, hidden] = dlogits · weight                               pieces of hidden are independent
//   dW[vocab, hidden] += dlogitsᵀ · input, over blocks of tokens        pieces of vocab are independent
//
// Pieces go to different threads, and inside a piece the order of summation is fixed, so that the result does
// not depend on the number of threads.
//
// Error of a logit, u = 2^-53: the dot product has `hidden` roundings at most on any path, whatever the order
// of summation (Higham, Accuracy and Stability of Numerical Algorithms, 3.1; the products of 16-bit formats
// are exact), adding the bias and dividing two more, so it is within
//   gamma_{hidden+2} · (Σ_h |input_h|·|weight_h| + |bias|) / temperature,  gamma_n = n·u / (1 − n·u),
// unless a product of two float64 inputs underflows.
#include <algorithm>
#include <limits>
#include <span>

#include "reference/divergence.h"
#include "reference/linear_jsd_detail.h"
#include "reference/parallel.h"

namespace fljsd {
namespace detail {
namespace {

using Matrix = RowMajorMatrix<double>;

Index ceil_div(Index a, Index b) {
  return (a + b - 1) / b;
}

// The half-open range that piece `i` covers when `size` is cut into pieces of `step`.
struct Range {
  Range(Index i, Index step, Index size) : first(i * step), count(std::min(step, size - i * step)) {}
  Index first, count;
};

// The given rows, decoded: [rows.size(), cols].
Matrix decode_rows(const MatrixView& view, std::span<const Index> rows) {
  Matrix decoded(static_cast<Index>(rows.size()), view.cols);
  for (Index i = 0; i < decoded.rows(); ++i)
    view.row(rows[static_cast<std::size_t>(i)], 0, view.cols, decoded.row(i).data());
  return decoded;
}

// Rows × cols of a weight into `tile`, whose memory is kept from call to call.
void decode_tile(const MatrixView& weight, const Range& rows, const Range& cols, Matrix& tile) {
  tile.resize(rows.count, cols.count);
  for (Index r = 0; r < rows.count; ++r)
    weight.row(rows.first + r, cols.first, cols.count, tile.row(r).data());
}

// Columns [vocab.first, +count) of the logits of some tokens, given their decoded inputs [tokens, hidden].
void logits_piece(const Model& model, const Matrix& input, const Range& vocab, double temperature,
                  const BlockSizes& blocks, Matrix& logits) {
  Matrix tile;
  for (Index i = 0; i < ceil_div(vocab.count, blocks.vocab); ++i) {
    Range rows(i, blocks.vocab, vocab.count);
    rows.first += vocab.first;
    auto out = logits.middleCols(rows.first, rows.count);
    out.setZero();
    for (Index j = 0; j < ceil_div(input.cols(), blocks.hidden); ++j) {
      const Range cols(j, blocks.hidden, input.cols());
      decode_tile(model.weight, rows, cols, tile);
      out.noalias() += input.middleCols(cols.first, cols.count) * tile.transpose();
    }
    if (model.bias) {
      Eigen::RowVectorXd bias(rows.count);
      load_run(model.bias->dtype, model.bias->data, rows.first, rows.count, bias.data());
      out.rowwise() += bias;
    }
    if (temperature != 1) out /= temperature;
  }
}

// Logits of both models: student into x, teacher into y, both [tokens, valid vocab].
void all_logits(const Problem& problem, const Options& options, std::span<const Index> tokens,
                const Matrix& student_input, const BlockSizes& blocks, Matrix& x, Matrix& y) {
  const Matrix teacher_input = decode_rows(problem.teacher_input, tokens);
  // Several tiles a piece, so that a thread allocates its tile once for all of them.
  const Index step = 8 * blocks.vocab;
  const Index pieces = ceil_div(x.cols(), step);
  parallel_for(2 * pieces, [&](Index i) {
    const Range vocab(i % pieces, step, x.cols());
    if (i < pieces) {
      logits_piece(student(problem), student_input, vocab, options.temperature, blocks, x);
    } else {
      logits_piece(teacher(problem), teacher_input, vocab, options.temperature, blocks, y);
    }
  });
}

// The spec for one row. Returns D; with_gradient overwrites x by dD/dx.
double row_loss(std::span<double> x, std::span<double> y, double beta, bool with_gradient) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (!normalise(x, y)) {
    std::fill(x.begin(), x.end(), nan);
    return nan;
  }
  const std::span<const double> log_larger = x, d = y;
  const double loss = divergence(log_larger, d, beta);
  if (with_gradient) {
    const double kl = beta == 0 ? 0 : student_kl(log_larger, d, beta);
    for (std::size_t v = 0; v < x.size(); ++v)
      x[v] = gradient_term(LogRatio<double>{log_larger[v], d[v]}, beta, kl);
  }
  return loss;
}

// dX rows of a block's tokens: dlogits · weight, summed over vocab tile by tile.
void add_input_grad(const MatrixView& weight, const Matrix& dlogits, std::span<const Index> tokens,
                    const BlockSizes& blocks, Matrix& input_grad) {
  parallel_for(ceil_div(weight.cols, blocks.hidden), [&](Index j) {
    const Range cols(j, blocks.hidden, weight.cols);
    Matrix tile, sum = Matrix::Zero(dlogits.rows(), cols.count);
    for (Index i = 0; i < ceil_div(dlogits.cols(), blocks.vocab); ++i) {
      const Range rows(i, blocks.vocab, dlogits.cols());
      decode_tile(weight, rows, cols, tile);
      sum.noalias() += dlogits.middleCols(rows.first, rows.count) * tile;
    }
    for (Index t = 0; t < sum.rows(); ++t)
      input_grad.row(tokens[static_cast<std::size_t>(t)]).segment(cols.first, cols.count) = sum.row(t);
  });
}

// Row i of weight_grad += (column rows[i] of dlogits)ᵀ · input. Rows past the valid vocabulary have no column
// and stay 0.
void add_weight_grad(const Matrix& dlogits, const Matrix& input, std::span<const Index> rows,
                     const BlockSizes& blocks, Matrix& weight_grad) {
  parallel_for(ceil_div(weight_grad.rows(), blocks.vocab), [&](Index i) {
    const Range out(i, blocks.vocab, weight_grad.rows());
    Matrix columns(dlogits.rows(), out.count);
    for (Index t = 0; t < columns.rows(); ++t) {
      for (Index r = 0; r < out.count; ++r) {
        const Index v = rows[static_cast<std::size_t>(out.first + r)];
        columns(t, r) = v < dlogits.cols() ? dlogits(t, v) : 0;
      }
    }
    weight_grad.middleRows(out.first, out.count).noalias() += columns.transpose() * input;
    // 0 · NaN of a poisoned input is not 0.
    for (Index r = out.first; r < out.first + out.count; ++r)
      if (rows[static_cast<std::size_t>(r)] >= dlogits.cols()) weight_grad.row(r).setZero();
  });
}

void add_bias_grad(const Matrix& dlogits, std::vector<Sum<double>>& bias_grad) {
  constexpr Index step = 4096;
  parallel_for(ceil_div(dlogits.cols(), step), [&](Index i) {
    const Range vocab(i, step, dlogits.cols());
    for (Index t = 0; t < dlogits.rows(); ++t)
      for (Index v = vocab.first; v < vocab.first + vocab.count; ++v)
        bias_grad[static_cast<std::size_t>(v)].add(dlogits(t, v));
  });
}

}  // namespace

BlockSizes default_blocks(Index counted, Index vocab) {
  // Two rows of logits a token; the rest of the GiB is for decoded inputs. A tile of 512 KiB for each thread
  // stays in its L2 cache.
  constexpr Index logits_bytes = Index{640} << 20;
  const Index most = std::clamp<Index>(logits_bytes / (2 * vocab * Index{sizeof(double)}), 1, 512);
  // Blocks of equal size, so that the last one is not a small remainder.
  const Index number = std::max<Index>(1, ceil_div(counted, most));
  return {std::max<Index>(1, ceil_div(counted, number)), 256, 256};
}

void float64_logits(const Problem& problem, const Options& options, std::span<const Index> tokens,
                    const BlockSizes& blocks, Matrix& x, Matrix& y) {
  all_logits(problem, options, tokens, decode_rows(problem.student_input, tokens), blocks, x, y);
}

Result linear_jsd_blocked(const Problem& problem, const Options& options, const Wanted& wanted,
                          const BlockSizes& blocks) {
  fljsd::validate(problem, options);
  validate(problem, wanted);
  const std::vector<Index> tokens = counted_tokens(problem, options);
  const Index counted = static_cast<Index>(tokens.size());
  const Index valid = valid_vocab(problem, options);
  const Index hidden = problem.student_input.cols;

  Result result;
  result.counted = counted;
  result.token_loss.assign(static_cast<std::size_t>(problem.tokens()), 0);
  const std::vector<Index> grad_rows = weight_grad_rows(problem, wanted);
  if (wanted.student_input_grad) result.student_input_grad = Matrix::Zero(problem.tokens(), hidden);
  if (wanted.student_weight_grad)
    result.student_weight_grad = Matrix::Zero(static_cast<Index>(grad_rows.size()), hidden);
  std::vector<Sum<double>> bias_grad(wanted.student_bias_grad ? static_cast<std::size_t>(valid) : 0);

  for (Index b = 0; b < ceil_div(counted, blocks.tokens); ++b) {
    const Range range(b, blocks.tokens, counted);
    const std::span<const Index> block = std::span(tokens).subspan(static_cast<std::size_t>(range.first),
                                                                   static_cast<std::size_t>(range.count));
    const Matrix input = decode_rows(problem.student_input, block);
    Matrix x(range.count, valid), y(range.count, valid);
    all_logits(problem, options, block, input, blocks, x, y);

    // A few rows a piece when rows are short: starting a thread costs about as much as a thousand entries.
    const Index rows_per_piece = std::max<Index>(1, 4096 / valid);
    parallel_for(ceil_div(range.count, rows_per_piece), [&](Index i) {
      const Range rows(i, rows_per_piece, range.count);
      for (Index t = rows.first; t < rows.first + rows.count; ++t) {
        const auto size = static_cast<std::size_t>(valid);
        result.token_loss[static_cast<std::size_t>(block[static_cast<std::size_t>(t)])] =
            row_loss(std::span(x.row(t).data(), size), std::span(y.row(t).data(), size), options.beta,
                     wanted.any_grad());
      }
    });

    const Matrix& dlogits = x;
    if (wanted.student_input_grad)
      add_input_grad(problem.student_weight, dlogits, block, blocks, result.student_input_grad);
    if (wanted.student_weight_grad)
      add_weight_grad(dlogits, input, grad_rows, blocks, result.student_weight_grad);
    if (wanted.student_bias_grad) add_bias_grad(dlogits, bias_grad);
  }

  const double divisor = static_cast<double>(reduction_divisor(options, counted));
  if (options.reduction != Reduction::none) {
    Sum<double> sum;
    for (Index t : tokens) sum.add(result.token_loss[static_cast<std::size_t>(t)]);
    result.loss = sum.value() / divisor;
  }
  // d/dlogits so far: dlogits/d(dot + bias) = 1/temperature.
  const auto scaled = [&](double sum) { return sum / divisor / options.temperature; };
  result.student_input_grad = result.student_input_grad.unaryExpr(scaled).eval();
  for (Index r = 0; r < result.student_weight_grad.rows();
       ++r)  // row by row: no second copy of a large matrix
    result.student_weight_grad.row(r) = result.student_weight_grad.row(r).unaryExpr(scaled);
  if (wanted.student_bias_grad) {
    result.student_bias_grad.assign(static_cast<std::size_t>(problem.vocab()), 0);
    std::transform(bias_grad.begin(), bias_grad.end(), result.student_bias_grad.begin(),
                   [&](const Sum<double>& sum) { return scaled(sum.value()); });
  }
  return result;
}

}  // namespace detail

template <>
Result linear_jsd<double>(const Problem& problem, const Options& options, const Wanted& wanted) {
  validate(problem, options);
  return detail::linear_jsd_blocked(
      problem, options, wanted,
      detail::default_blocks(count_tokens(problem, options), valid_vocab(problem, options)));
}

template <>
LogitRows<double> logits<double>(const Problem& problem, const Options& options, Index token) {
  validate(problem, options);
  detail::validate_token(problem, token);
  const Index valid = valid_vocab(problem, options);
  const Index tokens[] = {token};
  detail::Matrix x(1, valid), y(1, valid);
  detail::float64_logits(problem, options, tokens, detail::default_blocks(1, valid), x, y);
  return {{x.data(), x.data() + valid}, {y.data(), y.data() + valid}};
}

}  // namespace fljsd
