// SPDX-License-Identifier: Apache-2.0
#include "cuda/shard_kernels.h"

#include "cuda/ignored.cuh"
#include "cuda/launch.h"
#include "cuda/one_pass_many.cuh"

namespace fljsd::cuda {
namespace {

// One warp a token, lane k for frequency k.
template <Basis basis>
__global__ void __launch_bounds__(32 * merging_warps)
    merge_moments(RecordGrid records, Index tokens, Ignored ignored, float scale, float phase_step,
                  float* out) {
  using M = Moments<basis>;
  using Record = MomentRecord<M>;
  const Index token = static_cast<Index>(blockIdx.x) * merging_warps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (token >= tokens) return;
  float* record = out + token * Record::floats;
  if (is_ignored(ignored, token)) {
    if (lane == 0) Record::set_empty(record);
    return;
  }
  if (lane > M::last) return;
  const float* first = records.data + token * records.token_stride;
  merge_records<M>(
      records.count, [&](Index s) { return first + s * records.record_stride; }, scale, phase_step, lane,
      record);
}

// Many records: a block a token.
template <Basis basis>
__global__ void __launch_bounds__(many_records_threads)
    merge_many(RecordGrid records, Ignored ignored, float scale, float phase_step, float* out) {
  using M = Moments<basis>;
  using Record = MomentRecord<M>;
  const Index token = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  float* record = out + token * Record::floats;
  if (is_ignored(ignored, token)) {
    if (thread == 0) Record::set_empty(record);
    return;
  }
  const float* first = records.data + token * records.token_stride;
  ModelReferences refs;
  const FrequencySum sum = sum_many<M>(
      records.count, [&](Index s) { return first + s * records.record_stride; }, scale, phase_step, refs);
  if (thread <= M::last) set_frequency<M>(record, thread, sum, refs);
}

// One thread a token.
__global__ void __launch_bounds__(128)
    merge_endpoint(RecordGrid records, Index tokens, Ignored ignored, float log2_scale, float* out) {
  const Index token = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (token >= tokens) return;
  float* record = out + token * EndpointRecord::floats;
  if (is_ignored(ignored, token)) {
    EndpointRecord::set_empty(record);
    return;
  }
  const float* first = records.data + token * records.token_stride;
  merge_endpoint_records(
      records.count, [&](Index s) { return first + s * records.record_stride; }, log2_scale, record);
}

template <class Record>
__global__ void __launch_bounds__(128) empty_records(Index tokens, float* out) {
  const Index token = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (token < tokens) Record::set_empty(out + token * Record::floats);
}

}  // namespace

void launch_merge_records(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                          float phase_step, const RecordGrid& records, Index tokens, Ignored ignored,
                          float* out) {
  const char* doing = "merging the one-pass statistics of shards";
  if (kind != Divergence::mixture) {
    launch(doing, merge_endpoint, grid_of(ceil_div(tokens, 128)), 128, stream, records, tokens, ignored,
           mixture.log2_scale, out);
    return;
  }
  const float scale = 0.5f * mixture.log2_scale;
  if (records.count >= many_records) {
    launch(doing, basis == Basis::twelve ? merge_many<Basis::twelve> : merge_many<Basis::twenty_two>,
           grid_of(tokens), many_records_threads, stream, records, ignored, scale, phase_step, out);
    return;
  }
  launch(doing, basis == Basis::twelve ? merge_moments<Basis::twelve> : merge_moments<Basis::twenty_two>,
         grid_of(ceil_div(tokens, merging_warps)), 32 * merging_warps, stream, records, tokens, ignored,
         scale, phase_step, out);
}

void launch_empty_records(cudaStream_t stream, Divergence kind, Basis basis, Index tokens, float* out) {
  launch("clearing the one-pass statistics",
         kind != Divergence::mixture ? empty_records<EndpointRecord>
         : basis == Basis::twelve    ? empty_records<MomentRecord<Moments<Basis::twelve>>>
                                     : empty_records<MomentRecord<Moments<Basis::twenty_two>>>,
         grid_of(ceil_div(tokens, 128)), 128, stream, tokens, out);
}

}  // namespace fljsd::cuda
