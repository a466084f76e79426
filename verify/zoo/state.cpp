// SPDX-License-Identifier: Apache-2.0
// Faults of memory and state: outputs not written, inputs overwritten, answers that depend on what ran
// before.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>

#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

struct InputsOverwritten : Twin<double> {
  static constexpr About about{"inputs-overwritten", "dX is written over the activations to save memory."};
  Result run(const Problem& p, const Options& o, const Request& request) override {
    Result result = Twin::run(p, o, request);
    const MatrixView& in = p.student_input;
    for (Index t = 0; t < result.student_input_grad.rows(); ++t)
      for (Index h = 0; h < in.cols; ++h)
        store(in.dtype, const_cast<void*>(in.data), t * in.row_stride + h, result.student_input_grad(t, h));
    return result;
  }
};

struct IgnoredRowsNotWritten : Twin<double> {
  static constexpr About about{"ignored-rows-not-written",
                               "Rows of dX of ignored tokens keep what the buffer held."};
  void clear(Buffers& out) const override {
    const Gradient before = out.input_grad;
    Twin::clear(out);
    out.input_grad = before;
  }
  void add_input_grad(Gradient& grad, Index token, const Row& g) const override {
    grad.row(token).setZero();
    Twin::add_input_grad(grad, token, g);
  }
};

struct PaddingRowsNotWritten : Twin<double> {
  static constexpr About about{"padding-rows-not-written",
                               "Rows of dW past valid_vocab keep what the buffer held."};
  void clear(Buffers& out) const override {
    const Index padding = problem.vocab() - entries(Model::student);
    const Gradient before = out.weight_grad.bottomRows(padding);
    Twin::clear(out);
    out.weight_grad.bottomRows(padding) = before;
  }
};

struct BufferNotCleared : Twin<double> {
  static constexpr About about{"buffer-not-cleared", "dW is added to what the buffer held."};
  void clear(Buffers& out) const override {
    const Gradient before = out.weight_grad;
    Twin::clear(out);
    out.weight_grad = before;
  }
};

struct WeightGradientKept : Twin<double> {
  static constexpr About about{"weight-gradient-kept",
                               "dW adds up over calls of the same shape: a workspace that is zeroed once."};
  Result run(const Problem& p, const Options& o, const Request& request) override {
    Result result = Twin::run(p, o, request);
    RowMajorMatrix<double>& grad = result.student_weight_grad;
    if (kept.rows() == grad.rows() && kept.cols() == grad.cols()) grad += kept;
    kept = grad;
    return result;
  }
  RowMajorMatrix<double> kept;
};

struct RescaledSecondTime : Twin<double> {
  static constexpr About about{"rescaled-second-time",
                               "Backward scales the saved gradient in place; a second call scales it again."};
  Result run(const Problem& p, const Options& o, const Request& request) override {
    Result result = Twin::run(p, o, request);
    if (result.token_loss == last) result.student_input_grad *= 0.5;
    last = result.token_loss;
    return result;
  }
  std::vector<double> last;
};

struct AnswersMemorised : Twin<double> {
  static constexpr About about{"answers-memorised", "A cache is keyed by shapes only."};
  Result run(const Problem& p, const Options& o, const Request& request) override {
    const Key now{p.tokens(),  p.vocab(),   p.student_input.cols, p.student_bias.has_value(),
                  o.reduction, request.grad};
    if (key != now) memory = Twin::run(p, o, request);
    key = now;
    return memory;
  }
  using Key = std::tuple<Index, Index, Index, bool, Reduction, bool>;
  std::optional<Key> key;
  Result memory;
};

struct FirstTemperatureKept : Twin<double> {
  static constexpr About about{"first-temperature-kept",
                               "A captured graph or compiled kernel keeps the first call's temperature."};
  Result run(const Problem& p, const Options& o, const Request& request) override {
    if (!first) first = o.temperature;
    Options stale = o;
    stale.temperature = *first;
    return Twin::run(p, stale, request);
  }
  std::optional<double> first;
};

struct OrderOfSumsVaries : Twin<double> {
  static constexpr About about{"order-of-sums-varies",
                               "dW is summed by atomics in any order, though determinism is claimed."};
  std::vector<Index> token_order() override {
    std::vector<Index> order = Twin::token_order();
    if (!order.empty())
      std::rotate(order.begin(), order.begin() + calls++ % static_cast<Index>(order.size()), order.end());
    return order;
  }
  Index calls = 0;
};

struct RaceNowAndThen : Twin<double> {
  static constexpr About about{"race-now-and-then",
                               "A missing barrier: in one call of 16 a token reads its neighbour's loss."};
  Result run(const Problem& p, const Options& o, const Request& request) override {
    Result result = Twin::run(p, o, request);
    if (++calls % 16 == 0 && result.token_loss.size() > 1) result.token_loss[0] = result.token_loss[1];
    return result;
  }
  std::uint64_t calls = 0;
};

struct RareRace : Twin<double> {
  static constexpr About about{"rare-race", "The same in one call of 500, and in a row of dW."};
  Result run(const Problem& p, const Options& o, const Request& request) override {
    Result result = Twin::run(p, o, request);
    if (++calls % 500 == 0 && request.grad) result.student_weight_grad.row(0).setConstant(1);
    return result;
  }
  std::uint64_t calls = 0;
};

struct PreviousLossRead : Twin<double> {
  static constexpr About about{
      "previous-loss-read",
      "Losses are summed in groups of 4, the last of which holds what the call before left."};
  double reduce(const std::vector<double>& losses) const override {
    const std::size_t groups = (losses.size() + 3) / 4 * 4;
    if (workspace.size() < groups) workspace.resize(groups, 0);
    std::copy(losses.begin(), losses.end(), workspace.begin());
    return Twin::reduce({workspace.begin(), workspace.begin() + static_cast<std::ptrdiff_t>(groups)});
  }
  mutable std::vector<double> workspace;
};

}  // namespace

std::vector<Fault> state_faults() {
  return list<InputsOverwritten, IgnoredRowsNotWritten, PaddingRowsNotWritten, BufferNotCleared,
              WeightGradientKept, RescaledSecondTime, AnswersMemorised, FirstTemperatureKept,
              OrderOfSumsVaries, RaceNowAndThen, RareRace, PreviousLossRead>("state");
}

}  // namespace fljsd::zoo
