// SPDX-License-Identifier: Apache-2.0
#include "reference/rounding.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "reference/linear_jsd_detail.h"
#include "reference/parallel.h"
#include "reference/rounding/products.h"
#include "reference/rounding/row.h"
#include "reference/rounding/tensor_core_products.h"
#include "reference/rounding/tree_sum.h"

namespace fljsd {
namespace {

std::vector<Index> first_indices(Index count) {
  std::vector<Index> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), Index{0});
  return indices;
}

std::vector<double> decode_bias(const std::optional<VectorView>& bias, Index vocab) {
  if (!bias) return {};
  std::vector<double> values(static_cast<std::size_t>(vocab));
  load_run(bias->dtype, bias->data, 0, vocab, values.data());
  return values;
}

// What all pipelines of a run share.
struct Run {
  Run(const Problem& p, const Options& o, const Wanted& w)
      : problem(p),
        options(o),
        wanted(w),
        counted(detail::counted_tokens(p, o)),
        vocab(valid_vocab(p, o)),
        student_bias(decode_bias(p.student_bias, vocab)),
        teacher_bias(decode_bias(p.teacher_bias, vocab)) {}
  const Problem& problem;
  const Options& options;
  const Wanted& wanted;
  std::vector<Index> counted;  // tokens that are not ignored
  Index vocab;                 // the valid part
  std::vector<double> student_bias, teacher_bias;
};

// Products of a block of tokens, packed [tokens, vocab].
template <class Real>
struct BlockProducts {
  std::vector<Real> student, teacher;
};

template <class Real>
BlockProducts<Real> ordered_sums(const Run& run, std::span<const Index> tokens) {
  const Problem& p = run.problem;
  return {logit_products<Real>(p.student_input, tokens, p.student_weight, run.vocab),
          logit_products<Real>(p.teacher_input, tokens, p.teacher_weight, run.vocab)};
}

BlockProducts<float> tensor_core_sums(const Run& run, std::span<const Index> tokens) {
  const auto products = [&](const MatrixView& input, const MatrixView& weight) {
    return suits_tensor_core(input, weight)
               ? tensor_core_products(hopper_tensor_core, input, tokens, weight, run.vocab)
               : logit_products<float>(input, tokens, weight, run.vocab);
  };
  const Problem& p = run.problem;
  return {products(p.student_input, p.student_weight), products(p.teacher_input, p.teacher_weight)};
}

struct Block {
  std::span<const Index> tokens;
  std::optional<BlockProducts<float>> fp32, tensor_core;
  std::optional<BlockProducts<double>> float64;
};

// One pipeline while blocks of tokens pass by.
class PipelineRun {
 public:
  PipelineRun(const Run& run, const Pipeline& pipeline)
      : run_(run),
        pipeline_(pipeline),
        row_model_(pipeline, run.problem, run.options, static_cast<Index>(run.counted.size())) {
    const Index tokens = run.problem.tokens(), hidden = run.problem.student_input.cols;
    result_.counted = static_cast<Index>(run.counted.size());
    result_.token_loss.assign(static_cast<std::size_t>(tokens), 0);
    if (run.wanted.student_input_grad)
      result_.student_input_grad = RowMajorMatrix<double>::Zero(tokens, hidden);
    const std::vector<Index> read = pipeline.guarded ? run.counted : first_indices(tokens);
    const Index chunk =
        pipeline.chunking == Chunking::by_sizes ? chunk_tokens(tokens, run.vocab, hidden) : Index{0};
    if (run.wanted.student_weight_grad) {
      const auto& sample = run.wanted.weight_grad_rows;
      weight_grad_.emplace(sample ? *sample : first_indices(run.problem.vocab()), hidden, read, chunk,
                           weight_dtype());
    }
    if (run.wanted.student_bias_grad)
      bias_grad_.emplace(first_indices(run.problem.vocab()), 1, read, chunk, bias_dtype());
  }

  bool sums_logits_in_float64() const { return pipeline_.logits == Storage::float64; }
  bool sums_logits_by_tensor_core() const {
    return !sums_logits_in_float64() && pipeline_.logit_sum == LogitSum::hopper_tensor_core;
  }
  bool sums_logits_in_order() const { return !sums_logits_in_float64() && !sums_logits_by_tensor_core(); }

  bool sums_gradients_in_fp32() const { return pipeline_.accumulation == Arithmetic::fp32; }

  // The tokens of a block that this pipeline reads.
  std::vector<Index> tokens_read(const Block& block) const {
    std::vector<Index> tokens;
    for (const Index position : positions_read(block))
      tokens.push_back(block.tokens[static_cast<std::size_t>(position)]);
    return tokens;
  }

  // Losses of a block's tokens, and what they add to the gradients of weight and bias. Fills `dlogits`,
  // packed [tokens read, vocab], or empty when no gradient is wanted. Real is the type of the gradients'
  // sums.
  template <class Real>
  void add(const Block& block, std::span<Real> dlogits) {
    const std::vector<Index> positions = positions_read(block), tokens = tokens_read(block);
    const Index count = static_cast<Index>(tokens.size()), vocab = run_.vocab;
    const bool with_gradient = run_.wanted.any_grad();

    // Several rows a piece, which share their working memory.
    const Index rows_per_piece = std::max<Index>({1, 4096 / vocab, count / 8});
    parallel_for((count + rows_per_piece - 1) / rows_per_piece, [&](Index piece) {
      RowModel::Workspace w;
      std::vector<double> row_dlogits(with_gradient ? static_cast<std::size_t>(vocab) : 0);
      for (Index i = piece * rows_per_piece; i < std::min(count, (piece + 1) * rows_per_piece); ++i) {
        if (sums_logits_in_float64()) {
          load_logits(*block.float64, positions[static_cast<std::size_t>(i)], w);
        } else {
          load_logits(sums_logits_by_tensor_core() ? *block.tensor_core : *block.fp32,
                      positions[static_cast<std::size_t>(i)], w);
        }
        const Index token = tokens[static_cast<std::size_t>(i)];
        const bool ignored = !is_counted(run_.problem, run_.options, token);
        const double loss = row_model_.run(w, ignored, row_dlogits);
        result_.token_loss[static_cast<std::size_t>(token)] = ignored ? 0 : loss;
        if (!with_gradient) continue;
        std::transform(row_dlogits.begin(), row_dlogits.end(), dlogits.begin() + i * vocab,
                       [](double value) { return static_cast<Real>(value); });
      }
    });

    if (weight_grad_) {
      const std::vector<Real> input = decode_rows<Real>(run_.problem.student_input, tokens);
      weight_grad_->add<Real>(count, dlogits, vocab, input);
    }
    if (bias_grad_) bias_grad_->add<Real>(count, dlogits, vocab, std::vector<Real>(tokens.size(), Real{1}));
  }

  RowMajorMatrix<double>& student_input_grad() { return result_.student_input_grad; }

  Result finish() {
    finish_loss();
    const Storage storage = pipeline_.gradients;
    round_matrix(dtype_of(storage, run_.problem.student_input.dtype), result_.student_input_grad);
    if (weight_grad_) {
      result_.student_weight_grad = std::move(weight_grad_->total());
      round_matrix(dtype_of(storage, weight_dtype()), result_.student_weight_grad);
    }
    if (bias_grad_) {
      round_matrix(dtype_of(storage, bias_dtype()), bias_grad_->total());
      result_.student_bias_grad.assign(bias_grad_->total().data(),
                                       bias_grad_->total().data() + bias_grad_->total().size());
    }
    return std::move(result_);
  }

 private:
  DType weight_dtype() const { return run_.problem.student_weight.dtype; }
  DType bias_dtype() const {
    return run_.problem.student_bias ? run_.problem.student_bias->dtype : weight_dtype();
  }

  static void round_matrix(DType dtype, RowMajorMatrix<double>& matrix) {
    round_all(dtype, std::span(matrix.data(), static_cast<std::size_t>(matrix.size())));
  }

  // Where the tokens that this pipeline reads stand in a block.
  std::vector<Index> positions_read(const Block& block) const {
    std::vector<Index> positions;
    for (std::size_t i = 0; i < block.tokens.size(); ++i) {
      if (!pipeline_.guarded || is_counted(run_.problem, run_.options, block.tokens[i]))
        positions.push_back(static_cast<Index>(i));
    }
    return positions;
  }

  template <class Real>
  void load_logits(const BlockProducts<Real>& products, Index position, RowModel::Workspace& w) const {
    const auto row = [&](const std::vector<Real>& all) {
      return std::span(all).subspan(static_cast<std::size_t>(position * run_.vocab),
                                    static_cast<std::size_t>(run_.vocab));
    };
    row_model_.student_logits(row(products.student), run_.student_bias, w.x);
    row_model_.teacher_logits(row(products.teacher), run_.teacher_bias, w.y);
  }

  template <class Real>
  double reduced_loss() const {
    const Real scale = 1 / static_cast<Real>(reduction_divisor(run_.options, result_.counted));
    TreeSum<Real> sum;
    for (Index t : run_.counted)
      sum.add(static_cast<Real>(result_.token_loss[static_cast<std::size_t>(t)]) * scale);
    return sum.value();
  }

  void finish_loss() {
    const DType dtype = dtype_of(pipeline_.loss, run_.problem.student_input.dtype);
    if (run_.options.reduction == Reduction::none) {
      round_all(dtype, result_.token_loss);
    } else {
      result_.loss = round_to(
          dtype, pipeline_.arithmetic == Arithmetic::fp32 ? reduced_loss<float>() : reduced_loss<double>());
    }
  }

  const Run& run_;
  const Pipeline pipeline_;
  RowModel row_model_;
  Result result_;
  std::optional<TokenSum> weight_grad_, bias_grad_;
};

// One block of tokens for pipelines whose gradients are summed in Real. Their dlogits are stacked, so that
// the weight is decoded once for as many of them as fit into a quarter of a GiB.
template <class Real>
void add_block(const Run& run, std::span<PipelineRun* const> pipelines, const Block& block) {
  const auto vocab = run.wanted.any_grad() ? static_cast<std::size_t>(run.vocab) : 0;
  const std::size_t most = (std::size_t{1} << 28) / sizeof(Real) / std::max<std::size_t>(1, vocab);  // rows
  for (std::size_t first = 0; first < pipelines.size();) {
    std::vector<InputGradientRow> rows;
    std::size_t last = first;
    for (; last < pipelines.size(); ++last) {
      const std::vector<Index> tokens = pipelines[last]->tokens_read(block);
      if (last > first && rows.size() + tokens.size() > most) break;
      for (const Index token : tokens) rows.push_back({&pipelines[last]->student_input_grad(), token});
    }
    std::vector<Real> dlogits(rows.size() * vocab);
    for (std::size_t done = 0; first < last; ++first) {
      const std::size_t size = pipelines[first]->tokens_read(block).size() * vocab;
      pipelines[first]->add<Real>(block, std::span(dlogits).subspan(done, size));
      done += size;
    }
    if (run.wanted.student_input_grad)
      input_gradient<Real>(dlogits, rows, run.vocab, run.problem.student_weight);
  }
}

}  // namespace

std::vector<Result> run_pipelines(const Problem& problem, const Options& options, const Wanted& wanted,
                                  std::span<const Pipeline> pipelines) {
  validate(problem, options);
  detail::validate(problem, wanted);
  const Run run(problem, options, wanted);

  std::vector<PipelineRun> runs;
  runs.reserve(pipelines.size());
  for (const Pipeline& pipeline : pipelines) runs.emplace_back(run, pipeline);

  std::vector<PipelineRun*> sum_in_fp32, sum_in_float64;  // gradients
  for (PipelineRun& r : runs) (r.sums_gradients_in_fp32() ? sum_in_fp32 : sum_in_float64).push_back(&r);
  const auto any = [&](const auto& property) { return std::any_of(runs.begin(), runs.end(), property); };
  const bool float64 = any([](const PipelineRun& r) { return r.sums_logits_in_float64(); });
  const bool fp32 = any([](const PipelineRun& r) { return r.sums_logits_in_order(); });
  const bool tensor_core = any([](const PipelineRun& r) { return r.sums_logits_by_tensor_core(); });
  const bool reads_ignored =
      std::any_of(pipelines.begin(), pipelines.end(), [](const Pipeline& p) { return !p.guarded; });
  const std::vector<Index> tokens = reads_ignored ? first_indices(problem.tokens()) : run.counted;

  const auto block_size = static_cast<std::size_t>(std::clamp<Index>((Index{1} << 23) / run.vocab, 1, 64));
  for (std::size_t first = 0; first < tokens.size() && !runs.empty(); first += block_size) {
    Block block;
    block.tokens = std::span(tokens).subspan(first, std::min(block_size, tokens.size() - first));
    if (fp32) block.fp32 = ordered_sums<float>(run, block.tokens);
    if (tensor_core) block.tensor_core = tensor_core_sums(run, block.tokens);
    if (float64) block.float64 = ordered_sums<double>(run, block.tokens);
    add_block<float>(run, sum_in_fp32, block);
    add_block<double>(run, sum_in_float64, block);
  }

  std::vector<Result> results;
  for (PipelineRun& r : runs) results.push_back(r.finish());
  return results;
}

Result run_pipeline(const Problem& problem, const Options& options, const Wanted& wanted,
                    const Pipeline& pipeline) {
  return std::move(run_pipelines(problem, options, wanted, std::span(&pipeline, 1)).front());
}

}  // namespace fljsd
