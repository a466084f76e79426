// SPDX-License-Identifier: Apache-2.0
// What ranks that share a vocabulary do with a problem, on the host: each sweeps its shard with the row
// arithmetic of the CUDA stages (cuda/*.cuh), its records become one (shard_merge.cuh), the shards' records
// are merged again in rank order, dlogits of the shard follow, and input gradients are added over the shards
// in fp32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "cuda/shard_merge.cuh"
#include "reference/shards.h"
#include "verify/tests/device_rows.h"

namespace fljsd::testing {

// One token's record of one shard, or of several.
using ShardRecord = std::vector<float>;

// A row's entries [first, first + size), filled up with −inf to a multiple of eight; eight of −inf if there
// are none.
inline DeviceRow part_of(const DeviceRow& row, const Shard& shard) {
  const auto size = static_cast<std::size_t>((std::max<Index>(shard.size, 1) + 7) / 8 * 8);
  DeviceRow part{std::vector<float>(size, -cu::infinity()), std::vector<float>(size, -cu::infinity())};
  std::copy_n(row.x.begin() + shard.first, shard.size, part.x.begin());
  std::copy_n(row.y.begin() + shard.first, shard.size, part.y.begin());
  return part;
}

// 0 < beta < 1, with gradients.
class MixtureShards {
 public:
  using M = cu::Moments<cu::Basis::twenty_two>;
  using Record = cu::MomentRecord<M>;

  MixtureShards(const cu::Mixture& mixture, double beta)
      : mixture_(mixture), weights_(cu::make_one_pass_weights(beta, cu::Basis::twenty_two)) {}

  // What one_pass_accumulate.cu leaves of a shard, two slices, as one record.
  ShardRecord sweep(const DeviceRow& part) const {
    constexpr std::size_t slices = 2;
    const float scale = 0.5f * mixture_.log2_scale, step = weights_.phase_step;
    std::vector<ShardRecord> records(slices, empty());
    for (std::size_t s = 0; s < slices; ++s) sweep_slice<M>(part, s, slices, scale, step, records[s].data());
    return merge(records);
  }
  static ShardRecord empty() {
    ShardRecord record(static_cast<std::size_t>(Record::floats));
    Record::set_empty(record.data());
    return record;
  }
  ShardRecord merge(const std::vector<ShardRecord>& records) const {
    ShardRecord out(static_cast<std::size_t>(Record::floats));
    const auto at = [&](std::int64_t s) { return records[static_cast<std::size_t>(s)].data(); };
    for (int k = 0; k <= M::last; ++k) {
      cu::merge_records<M>(static_cast<std::int64_t>(records.size()), at, 0.5f * mixture_.log2_scale,
                           weights_.phase_step, k, out.data());
    }
    return out;
  }
  // one_pass_finish.cu for one record. NaN for a row without a distribution.
  std::pair<float, cu::RowConstants> finish(const ShardRecord& record) const {
    return finish_records<M>(
        1, [&](std::int64_t) { return record.data(); }, mixture_, weights_);
  }

 private:
  cu::Mixture mixture_;
  cu::OnePassWeights weights_;
};

// beta = 0 and 1.
template <cu::Divergence kind>
class EndpointShards {
 public:
  explicit EndpointShards(const cu::Mixture& mixture) : mixture_(mixture) {}

  ShardRecord sweep(const DeviceRow& part) const {
    constexpr bool teacher_first = kind == cu::Divergence::teacher_kl;
    cu::KlRecord state{cu::KlReference::empty(), {0, 0, 0}};
    ShardRecord record = empty();
    for_batches(part, 0, 8, [&](std::size_t, const float(&xs)[8], const float(&ys)[8]) {
      const float(&x)[8] = teacher_first ? ys : xs;
      const float(&y)[8] = teacher_first ? xs : ys;
      const float max_first = *std::max_element(x, x + 8), max_second = *std::max_element(y, y + 8);
      cu::KlReference raised = state.ref;
      if (max_first > raised.top) {
        float at_top = -cu::infinity();
        for (int i = 0; i < 8; ++i) at_top = x[i] == max_first ? fmaxf(at_top, y[i]) : at_top;
        raised.set_top(max_first, at_top);
      }
      raised.other = fmaxf(raised.other, max_second);
      state.sums.raise(state.ref, raised, mixture_.log2_scale);
      state.ref = raised;
      cu::KlTerms terms{0, 0, 0};
      for (int i = 0; i < 8; ++i) terms.add(x[i], y[i], raised, mixture_.log2_scale);
      state.sums.first += static_cast<double>(terms.first);
      state.sums.second += static_cast<double>(terms.second);
      state.sums.mean += static_cast<double>(terms.mean);
    });
    cu::EndpointRecord::store(record.data(), state);
    return record;
  }
  static ShardRecord empty() {
    ShardRecord record(static_cast<std::size_t>(cu::EndpointRecord::floats));
    cu::EndpointRecord::set_empty(record.data());
    return record;
  }
  ShardRecord merge(const std::vector<ShardRecord>& records) const {
    ShardRecord out(static_cast<std::size_t>(cu::EndpointRecord::floats));
    cu::merge_endpoint_records(
        static_cast<std::int64_t>(records.size()),
        [&](std::int64_t s) { return records[static_cast<std::size_t>(s)].data(); }, mixture_.log2_scale,
        out.data());
    return out;
  }
  std::pair<float, cu::RowConstants> finish(const ShardRecord& record) const {
    const cu::KlRecord row = cu::EndpointRecord::load(record.data());
    if (!row.sums.has_distribution()) return {cu::nan_value(), cu::RowConstants{{}, cu::nan_value(), 0}};
    return {static_cast<float>(cu::bit * row.sums.divergence(row.ref, mixture_.log2_scale)),
            cu::kl_constants<kind>(row, mixture_)};
  }

 private:
  cu::Mixture mixture_;
};

// dlogits of a shard, times factor.
template <cu::Divergence kind, bool small_share>
std::vector<float> shard_dlogits(const DeviceRow& part, const cu::RowConstants& constants,
                                 const cu::Mixture& m, float factor) {
  std::vector<float> g(part.x.size(), cu::nan_value());
  if (!(constants.constant == constants.constant)) return g;
  for_batches(part, 0, 8, [&](std::size_t i, const float(&x)[8], const float(&y)[8]) {
    cu::gradient<kind, small_share, 4>(x, y, constants, m, factor, g.data() + i);
    cu::gradient<kind, small_share, 4>(x + 4, y + 4, constants, m, factor, g.data() + i + 4);
  });
  return g;
}

struct ShardedRow {
  float loss;
  std::vector<std::vector<float>> dlogits;  // of each shard
};

template <cu::Divergence kind, bool small_share, class Shards>
ShardedRow sharded_row(const Shards& how, const DeviceRow& row, const std::vector<Shard>& shards,
                       const cu::Mixture& m, float factor) {
  std::vector<DeviceRow> parts;
  std::vector<ShardRecord> records;
  for (const Shard& shard : shards) {
    parts.push_back(part_of(row, shard));
    records.push_back(shard.size == 0 ? how.empty() : how.sweep(parts.back()));
  }
  const auto [loss, constants] = how.finish(how.merge(records));
  ShardedRow outcome{loss, {}};
  for (const DeviceRow& part : parts)
    outcome.dlogits.push_back(shard_dlogits<kind, small_share>(part, constants, m, factor));
  return outcome;
}

inline ShardedRow sharded_row(const DeviceRow& row, const std::vector<Shard>& shards, double beta,
                              const cu::Mixture& m, float factor) {
  using D = cu::Divergence;
  switch (kind_of(beta)) {
    case D::teacher_kl:
      return sharded_row<D::teacher_kl, false>(EndpointShards<D::teacher_kl>(m), row, shards, m, factor);
    case D::student_kl:
      return sharded_row<D::student_kl, false>(EndpointShards<D::student_kl>(m), row, shards, m, factor);
    case D::mixture: break;
  }
  const MixtureShards how(m, beta);
  return m.small_share ? sharded_row<D::mixture, true>(how, row, shards, m, factor)
                       : sharded_row<D::mixture, false>(how, row, shards, m, factor);
}

// The whole problem by ranks that hold these shards, gradients in the student's format.
inline Result sharded_result(const Problem& p, const Options& options, const std::vector<Shard>& shards) {
  const cu::Mixture m = cu::make_mixture(options.beta, options.temperature);
  const Index tokens = p.tokens(), hidden = p.student_input.cols, valid = valid_vocab(p, options);
  const Index counted = count_tokens(p, options);
  const double divisor = static_cast<double>(reduction_divisor(options, counted));
  const DType format = p.student_input.dtype == p.student_weight.dtype ? p.student_input.dtype : DType::f32;
  const float factor = stored_factor(format, options.beta);
  const double alpha = 1 / (divisor * options.temperature * static_cast<double>(factor));
  Result result;
  result.counted = counted;
  result.token_loss.assign(static_cast<std::size_t>(tokens), 0);
  result.student_input_grad = RowMajorMatrix<double>::Zero(tokens, hidden);
  result.student_weight_grad = RowMajorMatrix<double>::Zero(p.vocab(), hidden);
  if (p.student_bias) result.student_bias_grad.assign(static_cast<std::size_t>(p.vocab()), 0);

  std::vector<Shard> existing;  // what of each shard lies below valid_vocab
  for (const Shard& s : shards) existing.push_back({s.first, std::clamp<Index>(valid - s.first, 0, s.size)});
  double loss = 0;
  for (Index t = 0; t < tokens; ++t) {
    if (!is_counted(p, options, t)) continue;
    const DeviceRow row{fp32_logits(p.student_input, p.student_weight, p.student_bias, t, valid),
                        fp32_logits(p.teacher_input, p.teacher_weight, p.teacher_bias, t, valid)};
    const ShardedRow outcome = sharded_row(row, existing, options.beta, m, factor);
    result.token_loss[static_cast<std::size_t>(t)] = static_cast<double>(outcome.loss);
    loss += static_cast<double>(outcome.loss);
    std::vector<float> input_grad(static_cast<std::size_t>(hidden), 0);
    for (std::size_t s = 0; s < existing.size(); ++s) {
      std::vector<double> part(input_grad.size(), 0);
      for (Index i = 0; i < existing[s].size; ++i) {
        const Index v = existing[s].first + i;
        const double g =
            round_to(format, static_cast<double>(outcome.dlogits[s][static_cast<std::size_t>(i)]));
        for (Index h = 0; h < hidden; ++h) {
          part[static_cast<std::size_t>(h)] += g * p.student_weight(v, h) * alpha;
          result.student_weight_grad(v, h) += g * p.student_input(t, h) * alpha;
        }
        if (p.student_bias) result.student_bias_grad[static_cast<std::size_t>(v)] += g * alpha;
      }
      for (std::size_t h = 0; h < part.size(); ++h) input_grad[h] += static_cast<float>(part[h]);
    }
    for (Index h = 0; h < hidden; ++h) {
      result.student_input_grad(t, h) =
          round_to(format, static_cast<double>(input_grad[static_cast<std::size_t>(h)]));
    }
  }
  round_head_gradients(p, format, valid, result);
  if (options.reduction != Reduction::none) result.loss = round_to(DType::f32, loss / divisor);
  return result;
}

}  // namespace fljsd::testing
