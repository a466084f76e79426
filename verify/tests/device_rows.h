// SPDX-License-Identifier: Apache-2.0
// What a CUDA stage does to a problem, on the host: the same row arithmetic (cuda/*.cuh, compiled by the C++
// compiler, with errors of the hardware's functions put in), in the order of a small grid. Matrix products
// are summed in fp32 for logits and in float64 for gradients: they are not what is looked at.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/gradient_norm.cuh"
#include "cuda/kappa_certificate.cuh"
#include "cuda/one_pass_values.cuh"
#include "cuda/one_pass_weights.h"
#include "cuda/row_sums.cuh"
#include "cuda/shard_merge.cuh"
#include "reference/linear_jsd.h"
#include "verify/cases/case.h"

namespace fljsd::testing {

namespace cu = fljsd::cuda;

// Raw fp32 logits of a row, bias added; a multiple of 8 entries, the last ones −inf.
struct DeviceRow {
  std::vector<float> x, y;
};

struct RowOutcome {
  float loss = 0;
  std::vector<float> dlogits;    // times factor, before they are stored
  float large = cu::infinity();  // from here on a bf16 dlogit's rounding residual is kept, times factor
  float sum = 0;                 // of the dlogits, in a grid's order
  float sum_tolerance = cu::infinity();
};

inline cu::Divergence kind_of(double beta) {
  return cu::divergence_kind(beta);
}

// Calls f with eight entries of both models at a time.
template <class F>
void for_batches(const DeviceRow& row, std::size_t first, std::size_t step, const F& f) {
  for (std::size_t i = first; i < row.x.size(); i += step) {
    float x[8], y[8];
    std::copy_n(row.x.data() + i, 8, x);
    std::copy_n(row.y.data() + i, 8, y);
    f(i, x, y);
  }
}

// The gradient's sweep: row_kernels.cu's third pass, or tile_dlogits.cu.
template <cu::Divergence kind, bool small_share>
RowOutcome sweep_dlogits(float loss, const DeviceRow& row, const cu::RowConstants& constants,
                         const cu::Mixture& m, float factor) {
  std::vector<float> dlogits(row.x.size());
  for_batches(row, 0, 8, [&](std::size_t i, const float(&x)[8], const float(&y)[8]) {
    cu::gradient<kind, small_share, 4>(x, y, constants, m, factor, dlogits.data() + i);
    cu::gradient<kind, small_share, 4>(x + 4, y + 4, constants, m, factor, dlogits.data() + i + 4);
  });
  RowOutcome outcome{loss, std::move(dlogits), factor * cu::residual_threshold<kind>(constants, m)};
  // tile_dlogits.cu: four at a time for each thread.
  for (std::size_t i = 0; i < row.x.size(); i += 4) {
    const float* g = outcome.dlogits.data() + i;
    outcome.sum += (g[0] + g[1]) + (g[2] + g[3]);
  }
  if (kind == cu::Divergence::mixture) {
    const float additions = static_cast<float>(row.x.size() / 4 + 3);
    outcome.sum_tolerance = factor * cu::certificate_tolerance(constants, m, additions);
  }
  return outcome;
}

// row_kernels.cu, four threads.
template <cu::Divergence kind, bool small_share>
RowOutcome stored_row(const DeviceRow& row, const cu::Mixture& m, float factor) {
  constexpr std::size_t threads = 4;
  cu::OnlineSum x = cu::OnlineSum::empty(), y = x;
  cu::TopEntry top = cu::TopEntry::empty();
  for (std::size_t t = 0; t < threads; ++t) {
    cu::OnlineSum own_x = cu::OnlineSum::empty(), own_y = own_x;
    for_batches(row, 8 * t, 8 * threads, [&](std::size_t, const float(&xs)[8], const float(&ys)[8]) {
      own_x.add(xs, m.log2_scale);
      own_y.add(ys, m.log2_scale);
      if (kind == cu::Divergence::student_kl) top.add(xs, ys);
    });
    x.merge(own_x, m.log2_scale);
    y.merge(own_y, m.log2_scale);
  }
  if (!(x.sum > 0 && x.sum < cu::infinity() && y.sum > 0 && y.sum < cu::infinity()))
    return {cu::nan_value(), std::vector<float>(row.x.size(), cu::nan_value()), cu::infinity()};
  cu::RowConstants constants;
  constants.ref = cu::reference_of<kind>(x, y, top, m);
  cu::RowTerms terms{0, 0, 0};
  for_batches(row, 0, 8, [&](std::size_t, const float(&xs)[8], const float(&ys)[8]) {
    cu::RowTerms part{0, 0, 0};
    cu::add_terms<kind, true, small_share, 4>(xs, ys, constants.ref, m, part);
    cu::add_terms<kind, true, small_share, 4>(xs + 4, ys + 4, constants.ref, m, part);
    terms.divergence += part.divergence;
    terms.kl_to_mixture += part.kl_to_mixture;
    terms.kappa += part.kappa;
  });
  constants.uses_kappa = 0;
  constants.constant = terms.kappa;
  if (kind == cu::Divergence::mixture) {
    constants.uses_kappa = terms.kappa < terms.kl_to_mixture ? 1 : 0;
    constants.constant = constants.uses_kappa > 0 ? terms.kappa : -terms.kl_to_mixture;
  }
  return sweep_dlogits<kind, small_share>(cu::divergence_in_nats(terms.divergence), row, constants, m,
                                          factor);
}

// one_pass_accumulate_kl.cu and one_pass_finish.cu: two slices, tiles of 16 entries.
template <cu::Divergence kind>
RowOutcome one_pass_kl_row(const DeviceRow& row, const cu::Mixture& m, float factor) {
  constexpr bool teacher_first = kind == cu::Divergence::teacher_kl;
  constexpr std::size_t slices = 2;
  using Record = cu::EndpointRecord;
  std::array<std::array<float, Record::floats>, slices> records;
  const float room = cu::kl_headroom / m.log2_scale;
  for (std::size_t s = 0; s < slices; ++s) {
    float* r = records[s].data();
    Record::set_empty(r);
    for_batches(row, 8 * s, 8 * slices, [&](std::size_t, const float(&xs)[8], const float(&ys)[8]) {
      const float(&x)[8] = teacher_first ? ys : xs;
      const float(&y)[8] = teacher_first ? xs : ys;
      const cu::KlReference ref = Record::reference(r);
      cu::KlReference raised = ref;
      float max_first = x[0], max_second = y[0];
      for (int i = 1; i < 8; ++i) max_first = fmaxf(max_first, x[i]), max_second = fmaxf(max_second, y[i]);
      if (max_first > ref.top) {
        float at_top = -cu::infinity();
        for (int i = 0; i < 8; ++i) at_top = x[i] == max_first ? fmaxf(at_top, y[i]) : at_top;
        raised.set_top(max_first, at_top);
      }
      if (max_first > ref.top || max_second - ref.other > room) raised.other = fmaxf(ref.other, max_second);
      cu::KlState state = Record::load(r).sums;
      state.raise(ref, raised, m.log2_scale);
      Record::store(r, {raised, state});
      cu::KlTerms terms{0, 0, 0};
      for (int i = 0; i < 8; ++i) terms.add(x[i], y[i], raised, m.log2_scale);
      cu::add_compensated(r[0], r[Record::lo], terms.first);
      cu::add_compensated(r[1], r[Record::lo + 1], terms.second);
      cu::add_compensated(r[2], r[Record::lo + 2], terms.mean);
    });
  }
  const cu::KlRecord finished = cu::finish_kl(slices, m.log2_scale, [&](std::int64_t s) {
    return Record::load(records[static_cast<std::size_t>(s)].data());
  });
  if (!finished.sums.has_distribution())
    return {cu::nan_value(), std::vector<float>(row.x.size(), cu::nan_value()), cu::infinity()};
  const cu::RowConstants constants = cu::kl_constants<kind>(finished, m);
  return sweep_dlogits<kind, false>(
      static_cast<float>(cu::bit * finished.sums.divergence(finished.ref, m.log2_scale)), row, constants, m,
      factor);
}

// From totals of moments to values of a record, in place, as a warp does it.
template <class M, int step = 0>
void take_value_steps(float (&totals)[M::count]) {
  if constexpr (step < cu::value_steps) {
    float before[M::count];
    std::copy_n(totals, M::count, before);
    for (int i = 0; i < 5 * M::rows; ++i) totals[i] = cu::value_after<M, step>(before, i);
    take_value_steps<M, step + 1>(totals);
  }
}

// What one_pass_accumulate.cu leaves of slice `slice` of `slices` of a row, into an empty record.
template <class M>
void sweep_slice(const DeviceRow& row, std::size_t slice, std::size_t slices, float scale, float phase_step,
                 float* record) {
  using Record = cu::MomentRecord<M>;
  for_batches(row, 8 * slice, 8 * slices, [&](std::size_t, const float(&x)[8], const float(&y)[8]) {
    const float max_x = *std::max_element(x, x + 8), max_y = *std::max_element(y, y + 8);
    cu::ModelReferences refs = Record::references(record);
    if (refs.x.above(max_x, scale) > cu::headroom || refs.y.above(max_y, scale) > cu::headroom) {
      const cu::ModelReferences raised{refs.x.raised(max_x, scale), refs.y.raised(max_y, scale)};
      const cu::Turn turn(refs, raised, scale, phase_step);
      double turned[M::values];
      for (int i = 0; i < M::values; ++i)
        turned[i] = turn.template value<M>(i, [&](int at) { return Record::value(record, at); });
      for (int i = 0; i < M::values; ++i) Record::set_value(record, i, turned[i]);
      Record::set_references(record, raised);
      refs = raised;
    }
    M moments;
    moments.clear();
    for (int i = 0; i < 8; ++i) moments.add(refs.x.above(x[i], scale), refs.y.above(y[i], scale), phase_step);
    take_value_steps<M>(moments.m);
    for (int i = 0; i < M::values; ++i) cu::add_compensated(record[i], record[Record::lo + i], moments.m[i]);
  });
}

// one_pass_finish.cu for 0 < beta < 1: the loss and the row constants of `count` records. NaN for a row
// without a distribution.
template <class M, class At>
std::pair<float, cu::RowConstants> finish_records(std::int64_t count, const At& at, const cu::Mixture& m,
                                                  const cu::OnePassWeights& weights) {
  const float scale = 0.5f * m.log2_scale;
  const cu::ModelReferences refs = cu::largest_references(
      count, scale, [&](std::int64_t s) { return cu::MomentRecord<M>::references(at(s)); });
  cu::FrequencySum sum{0, 0, 0, 0};
  double d = 0, kappa = 0;
  for (int k = 0; k <= M::last; ++k) {
    sum = cu::sum_records<M>(count, at, refs, scale, weights.phase_step, k);
    if (!sum.has_distribution()) return {cu::nan_value(), cu::RowConstants{{}, cu::nan_value(), 0}};
    sum.normalise(k, weights);
    d += weights.divergence[k] * sum.re;
    kappa += weights.student_real[k] * sum.re - weights.student_imaginary[k] * sum.im;
  }
  const cu::MixtureFinish finished = cu::finish_mixture(d, kappa, weights.beta);
  return {static_cast<float>(finished.divergence), cu::mixture_constants(finished, refs, sum.x, sum.y, m)};
}

// one_pass_accumulate.cu and one_pass_finish.cu for 0 < beta < 1 with gradients: two slices.
template <cu::Basis basis, bool small_share>
RowOutcome one_pass_row(const DeviceRow& row, const cu::Mixture& m, const cu::OnePassWeights& weights,
                        float factor) {
  using M = cu::Moments<basis>;
  using Record = cu::MomentRecord<M>;
  constexpr std::size_t slices = 2;
  std::array<std::array<float, Record::floats>, slices> records;
  for (std::size_t s = 0; s < slices; ++s) {
    Record::set_empty(records[s].data());
    sweep_slice<M>(row, s, slices, 0.5f * m.log2_scale, weights.phase_step, records[s].data());
  }
  const auto at = [&](std::int64_t s) { return records[static_cast<std::size_t>(s)].data(); };
  const auto [loss, constants] = finish_records<M>(std::int64_t{slices}, at, m, weights);
  if (std::isnan(constants.constant))
    return {cu::nan_value(), std::vector<float>(row.x.size(), cu::nan_value()), cu::infinity()};
  return sweep_dlogits<cu::Divergence::mixture, small_share>(loss, row, constants, m, factor);
}

enum class DeviceStage { stored, one_pass };

inline RowOutcome device_row(DeviceStage stage, const DeviceRow& row, const cu::Mixture& m, double beta,
                             float factor) {
  const bool stored = stage == DeviceStage::stored;
  switch (kind_of(beta)) {
    case cu::Divergence::teacher_kl:
      return stored ? stored_row<cu::Divergence::teacher_kl, false>(row, m, factor)
                    : one_pass_kl_row<cu::Divergence::teacher_kl>(row, m, factor);
    case cu::Divergence::student_kl:
      return stored ? stored_row<cu::Divergence::student_kl, false>(row, m, factor)
                    : one_pass_kl_row<cu::Divergence::student_kl>(row, m, factor);
    case cu::Divergence::mixture: break;
  }
  if (stored) {
    return m.small_share ? stored_row<cu::Divergence::mixture, true>(row, m, factor)
                         : stored_row<cu::Divergence::mixture, false>(row, m, factor);
  }
  const cu::OnePassWeights weights = cu::make_one_pass_weights(beta, cu::Basis::twenty_two);
  return m.small_share ? one_pass_row<cu::Basis::twenty_two, true>(row, m, weights, factor)
                       : one_pass_row<cu::Basis::twenty_two, false>(row, m, weights, factor);
}

// The fp32 logits of one model's row, summed in order; a bias is rounded to fp32 and added.
inline std::vector<float> fp32_logits(const MatrixView& input, const MatrixView& weight,
                                      const std::optional<VectorView>& bias, Index token, Index valid) {
  std::vector<float> out(static_cast<std::size_t>((valid + 7) / 8 * 8), -cu::infinity());
  for (Index v = 0; v < valid; ++v) {
    float sum = 0;
    for (Index h = 0; h < input.cols; ++h)
      sum = std::fma(static_cast<float>(input(token, h)), static_cast<float>(weight(v, h)), sum);
    out[static_cast<std::size_t>(v)] = bias ? sum + static_cast<float>((*bias)(v)) : sum;
  }
  return out;
}

// dlogits are stored as dD/dx times this (cuda/batch.h).
inline float stored_factor(DType dtype, double beta) {
  return dtype == DType::f16 && beta < 1 ? 32768.0f : 1.0f;
}

// The entries of a row whose rounding residuals are kept; none if they are more than a list holds.
inline std::vector<Index> residual_entries(const RowOutcome& outcome) {
  std::vector<Index> entries;
  for (std::size_t v = 0; v < outcome.dlogits.size(); ++v) {
    const float size = std::abs(outcome.dlogits[v]);
    if (size >= outcome.large && size < cu::infinity()) entries.push_back(static_cast<Index>(v));
  }
  if (entries.size() > 16) entries.clear();
  return entries;
}

// What a stage stores of the gradients of weight and bias, [0, valid) of their rows: the first in `format`,
// the second in fp32.
inline void round_head_gradients(const Problem& p, DType format, Index valid, Result& result) {
  for (Index v = 0; v < valid; ++v) {
    for (Index h = 0; h < p.student_input.cols; ++h)
      result.student_weight_grad(v, h) = round_to(format, result.student_weight_grad(v, h));
    if (p.student_bias) {
      double& sum = result.student_bias_grad[static_cast<std::size_t>(v)];
      sum = round_to(DType::f32, sum);
    }
  }
}

// The whole problem, gradients stored in the student's format.
inline Result device_result(DeviceStage stage, const Problem& p, const Options& options) {
  const double beta = options.beta;
  const cu::Mixture m = cu::make_mixture(beta, options.temperature);
  const Index tokens = p.tokens(), vocab = p.vocab(), hidden = p.student_input.cols;
  const Index valid = valid_vocab(p, options), counted = count_tokens(p, options);
  const double divisor = static_cast<double>(reduction_divisor(options, counted));
  // Matrices of two formats are given to a stage as fp32.
  const DType format = p.student_input.dtype == p.student_weight.dtype ? p.student_input.dtype : DType::f32;
  const float factor = stored_factor(format, beta);
  const double alpha = 1 / (divisor * options.temperature * static_cast<double>(factor));
  Result result;
  result.counted = counted;
  result.token_loss.assign(static_cast<std::size_t>(tokens), 0);
  result.student_input_grad = RowMajorMatrix<double>::Zero(tokens, hidden);
  result.student_weight_grad = RowMajorMatrix<double>::Zero(vocab, hidden);
  if (p.student_bias) result.student_bias_grad.assign(static_cast<std::size_t>(vocab), 0);

  double loss = 0;
  for (Index t = 0; t < tokens; ++t) {
    if (!is_counted(p, options, t)) continue;
    const DeviceRow row{fp32_logits(p.student_input, p.student_weight, p.student_bias, t, valid),
                        fp32_logits(p.teacher_input, p.teacher_weight, p.teacher_bias, t, valid)};
    const RowOutcome outcome = device_row(stage, row, m, beta, factor);
    result.token_loss[static_cast<std::size_t>(t)] = outcome.loss;
    loss += static_cast<double>(outcome.loss);
    for (Index v = 0; v < valid; ++v) {
      const double g = outcome.dlogits[static_cast<std::size_t>(v)], rounded = round_to(format, g);
      for (Index h = 0; h < hidden; ++h) {
        result.student_input_grad(t, h) += rounded * p.student_weight(v, h);
        result.student_weight_grad(v, h) += rounded * p.student_input(t, h) * alpha;
      }
      if (p.student_bias) result.student_bias_grad[static_cast<std::size_t>(v)] += rounded * alpha;
    }
    const std::vector<Index> kept = format == DType::bf16 ? residual_entries(outcome) : std::vector<Index>{};
    for (Index h = 0; h < hidden; ++h) {
      double& sum = result.student_input_grad(t, h);
      double given_back = 0;
      for (const Index v : kept) {
        const double g = outcome.dlogits[static_cast<std::size_t>(v)];
        given_back += (g - round_to(format, g)) * p.student_weight(v, h) * alpha;
      }
      sum = round_to(format, sum * alpha + given_back);
    }
  }
  round_head_gradients(p, format, valid, result);
  if (options.reduction != Reduction::none) result.loss = round_to(DType::f32, loss / divisor);
  return result;
}

}  // namespace fljsd::testing
