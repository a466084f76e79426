// SPDX-License-Identifier: Apache-2.0
#include "cuda/shard_kernels.h"

#include "cuda/device_math.cuh"
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

__global__ void __launch_bounds__(1024)
    tally(const float* token_loss, Ignored ignored, Index tokens, Tally* out) {
  double counted = 0, loss = 0;
  for (Index t = threadIdx.x; t < tokens; t += 1024) {
    if (is_ignored(ignored, t)) continue;
    counted += 1;
    if (token_loss != nullptr) loss += static_cast<double>(token_loss[t]);
  }
  __shared__ double part[2][32];
  counted = warp_sum(counted);
  loss = warp_sum(loss);
  if (threadIdx.x % 32 == 0) part[0][threadIdx.x / 32] = counted, part[1][threadIdx.x / 32] = loss;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  counted = warp_sum(part[0][threadIdx.x]);
  loss = warp_sum(part[1][threadIdx.x]);
  if (threadIdx.x == 0) *out = {counted, loss};
}

__device__ Tally total(const Tally* tallies, Index ranks) {
  Tally sum{0, 0};
  for (Index r = 0; r < ranks; ++r) sum.counted += tallies[r].counted, sum.loss += tallies[r].loss;
  return sum;
}

__global__ void combined_loss(const Tally* tallies, Index ranks, bool batchmean, float* loss) {
  const Tally sum = total(tallies, ranks);
  *loss = static_cast<float>(batchmean ? sum.loss / fmax(sum.counted, 1.0) : sum.loss);
}
__global__ void combined_factor(const Tally* tallies, Index ranks, double host_factor, DeviceScalars* out) {
  *out = {static_cast<float>(host_factor / fmax(total(tallies, ranks).counted, 1.0)), 0.0f, 1.0f};
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

void launch_tally(cudaStream_t stream, const float* token_loss, Ignored ignored, Index tokens, Tally* out) {
  launch("summing over the tokens", tally, dim3(1), 1024, stream, token_loss, ignored, tokens, out);
}

void launch_combined_loss(cudaStream_t stream, const Tally* tallies, Index ranks, bool batchmean,
                          float* loss) {
  launch("reducing the loss", combined_loss, dim3(1), 1, stream, tallies, ranks, batchmean, loss);
}

void launch_combined_factor(cudaStream_t stream, const Tally* tallies, Index ranks, double host_factor,
                            DeviceScalars* scalars) {
  launch("counting tokens", combined_factor, dim3(1), 1, stream, tallies, ranks, host_factor, scalars);
}

}  // namespace fljsd::cuda
