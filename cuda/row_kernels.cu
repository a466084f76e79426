// SPDX-License-Identifier: Apache-2.0
// Promise: per-token losses and dlogits from stored logits, the definition evaluated directly; nothing
// approximated but fp32.
//
// A row is read twice for the loss (normalisers, then terms) and a third time for the gradient:
//   1.  max and Σ e^{(x−max)/T} of both models, online per thread, merged in a fixed order
//   2.  D = Σ terms; with a gradient also KL(q‖M) and kappa          (row_divergence.cuh)
//   3.  dlogits
// Bytes: 8·vocab a row and pass with fp32 logits; the rows being worked on do not fit in the L2 cache at
// vocab 128256, so later passes read from DRAM too. From compute capability 9.0 on a long row is shared by a
// cluster of two blocks, elsewhere a row belongs to one. About 45 instructions a vocabulary entry for the
// loss and 45 more for the gradient.
//
// Error budget of the loss, relative to exact arithmetic on the same logits: exp2 and log2 2^-22 each,
// arguments rounded three times at 2^-24·|log2 q|; a term of D is good to about 2^-19 of itself and all terms
// are >= 0. The shift of d is off by at most 2^-21, which moves D by that times beta·KL(p‖M). Together below
// 3e-6·D + 5e-7. dlogits: 3e-6·q·(|constant| + |log ratio|), then one rounding to its format,
// which the largest entries of a bf16 row leave behind (rounding_residuals.h).
#include "cuda/row_kernels.h"

#include "cuda/device_math.cuh"
#include "cuda/failure.h"
#include "cuda/ignored.cuh"
#include "cuda/rounding_residuals.cuh"
#include "cuda/row_divergence.cuh"
#include "cuda/row_sums.cuh"
#include "cuda/row_walk.cuh"

namespace fljsd::cuda {
namespace {

constexpr int threads = 512;
constexpr int warps = threads / 32;
constexpr int blocks_per_multiprocessor = 2;

struct Arguments {
  LogitRows logits;
  Mixture mixture;
  float* token_loss;
  Dlogits dlogits;
};

// The sums of a warp, in every lane.
__device__ __forceinline__ OnlineSum over_warp(const OnlineSum& lane, float log2_scale) {
  const float max = warp_max(lane.max);
  return {max, warp_sum(lane.sum * exp2_fast((lane.max - max) * log2_scale))};
}
__device__ __forceinline__ TopEntry over_warp(const TopEntry& lane) {
  const float x = warp_max(lane.x);
  return {x, warp_max(lane.x == x ? lane.y : -infinity())};
}

// What the first pass finds, of a thread, a warp, a block, and the row.
struct FirstPass {
  OnlineSum x, y;
  TopEntry top;  // for beta = 1

  static __device__ __forceinline__ FirstPass empty() {
    return {OnlineSum::empty(), OnlineSum::empty(), TopEntry::empty()};
  }
  template <Divergence kind>
  __device__ __forceinline__ void merge(const FirstPass& other, float log2_scale) {
    x.merge(other.x, log2_scale);
    y.merge(other.y, log2_scale);
    if constexpr (kind == Divergence::student_kl) top.merge(other.top);
  }
};

template <class Logit, Divergence kind, bool with_gradient, bool small_share>
__global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
    row_losses(const __grid_constant__ Arguments a) {
  const Team team;
  const Index row = blockIdx.x / team.size;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const Mixture& m = a.mixture;
  const int vectors = (static_cast<int>(a.logits.vocab) + 3) / 4;
  const int stride = threads * static_cast<int>(team.size);
  const int first = threads * static_cast<int>(team.rank) + thread;
  char* dlogits_row = nullptr;
  if constexpr (with_gradient) {
    dlogits_row =
        static_cast<char*>(a.dlogits.data) + row * a.dlogits.ld * (a.dlogits.dtype == FLJSD_F32 ? 4 : 2);
  }
  const auto finish_without_gradient = [&](float value) {
    const float g[4] = {value, value, value, value};
    for (int v = first; v < vectors; v += stride) store4(dlogits_row, a.dlogits.dtype, 4 * v, g);
  };

  // The whole team takes this branch or none of it does.
  if (is_ignored(a.logits.ignored, row)) {
    if (team.rank == 0 && thread == 0) a.token_loss[row] = 0;
    if constexpr (with_gradient) finish_without_gradient(0);
    return;
  }

  const Index offset = row * a.logits.ld + 4 * first;
  const Cursor<Logit> start{static_cast<const Logit*>(a.logits.student) + offset,
                            static_cast<const Logit*>(a.logits.teacher) + offset,
                            static_cast<int>(a.logits.vocab) - 4 * first, 4 * stride};

  // 1. Normalisers: threads of a warp, warps of a block, blocks of the team, always in the same order.
  FirstPass row_state = FirstPass::empty();
  for (Cursor<Logit> at = start; at.more(); at.advance()) {
    const Batch b = at.load(a.logits);
    row_state.x.add(b.x, m.log2_scale);
    row_state.y.add(b.y, m.log2_scale);
    if constexpr (kind == Divergence::student_kl) row_state.top.add(b.x, b.y);
  }
  __shared__ FirstPass warp_state[warps];
  __shared__ FirstPass block_state;
  row_state.x = over_warp(row_state.x, m.log2_scale);
  row_state.y = over_warp(row_state.y, m.log2_scale);
  if constexpr (kind == Divergence::student_kl) row_state.top = over_warp(row_state.top);
  if (lane == 0) warp_state[warp] = row_state;
  __syncthreads();
  row_state = FirstPass::empty();
#pragma unroll
  for (int w = 0; w < warps; ++w) row_state.merge<kind>(warp_state[w], m.log2_scale);
  if (team.size > 1) {
    if (thread == 0) block_state = row_state;
    team.sync();
    row_state = FirstPass::empty();
    for (unsigned r = 0; r < team.size; ++r) {
      row_state.merge<kind>(*team.of(&block_state, r), m.log2_scale);
    }
  }
  const float sum_x = row_state.x.sum, sum_y = row_state.y.sum;
  const bool has_distribution = sum_x > 0 && sum_x < infinity() && sum_y > 0 && sum_y < infinity();
  RowConstants constants;
  constants.ref = reference_of<kind>(row_state.x, row_state.y, row_state.top, m);

  // 2. Terms.
  RowTerms terms{0, 0, 0};
  if (has_distribution) {
    for (Cursor<Logit> at = start; at.more(); at.advance()) {
      const Batch b = at.load(a.logits);
      RowTerms part{0, 0, 0};
      add_terms<kind, with_gradient, small_share, 4>(b.x, b.y, constants.ref, m, part);
      add_terms<kind, with_gradient, small_share, 4>(b.x + 4, b.y + 4, constants.ref, m, part);
      terms.divergence += part.divergence;
      terms.kl_to_mixture += part.kl_to_mixture;
      terms.kappa += part.kappa;
    }
  }
  __shared__ RowTerms warp_terms[warps];
  __shared__ RowTerms block_terms;
  terms.divergence = warp_sum(terms.divergence);
  if constexpr (with_gradient && kind == Divergence::mixture)
    terms.kl_to_mixture = warp_sum(terms.kl_to_mixture);
  if constexpr (with_gradient && kind != Divergence::teacher_kl) terms.kappa = warp_sum(terms.kappa);
  if (lane == 0) warp_terms[warp] = terms;
  __syncthreads();
  const auto add = [](const RowTerms& s, const RowTerms& t) {
    return RowTerms{s.divergence + t.divergence, s.kl_to_mixture + t.kl_to_mixture, s.kappa + t.kappa};
  };
  terms = RowTerms{0, 0, 0};
#pragma unroll
  for (int w = 0; w < warps; ++w) terms = add(terms, warp_terms[w]);
  if (team.size > 1) {
    if (thread == 0) block_terms = terms;
    team.sync();
    terms = RowTerms{0, 0, 0};
    for (unsigned r = 0; r < team.size; ++r) terms = add(terms, *team.of(&block_terms, r));
    team.sync();  // nobody leaves while its shared memory is being read
  }
  if (team.rank == 0 && thread == 0)
    a.token_loss[row] = has_distribution ? divergence_in_nats(terms.divergence) : nan_value();

  // 3. Gradient.
  if constexpr (with_gradient) {
    if (!has_distribution) {
      finish_without_gradient(nan_value());
      return;
    }
    constants.uses_kappa = 0;
    constants.constant = terms.kappa;
    if constexpr (kind == Divergence::mixture) {
      constants.uses_kappa = terms.kappa < terms.kl_to_mixture ? 1 : 0;
      constants.constant = constants.uses_kappa > 0 ? terms.kappa : -terms.kl_to_mixture;
    }
    const ResidualFilter residuals =
        ResidualFilter::make<kind>(a.dlogits.residuals, row, constants, m, a.dlogits.factor);
    int column = 4 * first;
    for (Cursor<Logit> at = start; at.more(); at.advance(), column += 2 * at.step) {
      const Batch b = at.load(a.logits);
      float g[4];
      gradient<kind, small_share, 4>(b.x, b.y, constants, m, a.dlogits.factor, g);
      store4(dlogits_row, a.dlogits.dtype, column, g);
      residuals.look_at(column, g);
      if (!at.second()) break;
      gradient<kind, small_share, 4>(b.x + 4, b.y + 4, constants, m, a.dlogits.factor, g);
      store4(dlogits_row, a.dlogits.dtype, column + at.step, g);
      residuals.look_at(column + at.step, g);
    }
  }
}

// Blocks to a row. Two are fastest at vocab 128256, although the rows being worked on then exceed the L2
// cache: every pass ends in a reduction over the team, and more blocks make passes shorter, not reductions
// (docs/kernels.md). Code for 8.0 has no clusters, on whatever device it was compiled anew: what counts is
// what Team was compiled for. It depends on nothing but the code and the vocabulary, so that a row has the
// same bits in any batch.
template <class Kernel>
unsigned team_size(Kernel* kernel, Index vocab) {
  if (vocab < 8192) return 1;
  cudaFuncAttributes compiled{};
  check(cudaFuncGetAttributes(&compiled, kernel), "looking for the code of the row losses");
  return compiled.ptxVersion >= 90 ? 2 : 1;
}

template <class Logit, bool with_gradient>
auto select(Divergence kind, bool small_share) {
  switch (kind) {
    case Divergence::teacher_kl: return row_losses<Logit, Divergence::teacher_kl, with_gradient, false>;
    case Divergence::student_kl: return row_losses<Logit, Divergence::student_kl, with_gradient, false>;
    case Divergence::mixture: break;
  }
  return small_share ? row_losses<Logit, Divergence::mixture, with_gradient, true>
                     : row_losses<Logit, Divergence::mixture, with_gradient, false>;
}

}  // namespace

void launch_row_losses(cudaStream_t stream, Divergence kind, const Mixture& mixture, const LogitRows& logits,
                       float* token_loss, const Dlogits& dlogits) {
  const bool with_gradient = dlogits.data != nullptr;
  const bool small = mixture.small_share;
  auto* kernel = logits.dtype == FLJSD_F32
                     ? (with_gradient ? select<float, true>(kind, small) : select<float, false>(kind, small))
                     : (with_gradient ? select<__nv_bfloat16, true>(kind, small)
                                      : select<__nv_bfloat16, false>(kind, small));
  const unsigned team = team_size(kernel, logits.vocab);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(logits.rows) * team);
  config.blockDim = dim3(threads);
  config.stream = stream;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {team, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = team > 1 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, Arguments{logits, mixture, token_loss, dlogits}),
        "launching the row losses");
}

}  // namespace fljsd::cuda
