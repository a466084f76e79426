// SPDX-License-Identifier: Apache-2.0
#include "cuda/kappa_certificate.h"

#include <algorithm>

#include "cuda/device_math.cuh"
#include "cuda/kappa_certificate.cuh"
#include "cuda/launch.h"

namespace fljsd::cuda {
namespace {

constexpr int certify_threads = 1024;
constexpr int repair_threads = 256, repair_warps = repair_threads / 32;

// One block, so that the list is in the order of the tokens.
__global__ void __launch_bounds__(certify_threads)
    certify(const __grid_constant__ Mixture m, const __grid_constant__ Certificate certificate,
            const RowConstants* constants, Index tokens, float factor, float additions) {
  __shared__ unsigned in_warp[certify_threads / 32];
  const unsigned thread = threadIdx.x, lane = thread % 32;
  unsigned count = 0;  // before this round
  for (Index first = 0; first < tokens; first += certify_threads) {
    const Index token = first + thread;
    bool missed = false;
    if (token < tokens) {
      const RowConstants c = constants[token];
      const float sum = fabsf(certificate.dlogit_sums[token]);
      missed = c.uses_kappa >= 0 && sum > factor * certificate_tolerance(c, m, additions) && sum < infinity();
    }
    const unsigned ballot = __ballot_sync(all_lanes, missed);
    if (lane == 0) in_warp[thread / 32] = __popc(ballot);
    __syncthreads();
    unsigned before = count;
    for (unsigned w = 0; w < certify_threads / 32; ++w) {
      before += w < thread / 32 ? in_warp[w] : 0;
      count += in_warp[w];
    }
    before += __popc(ballot & ((1u << lane) - 1));
    if (missed) certificate.missed[before] = static_cast<std::int32_t>(token);
    __syncthreads();
  }
  if (thread == 0) *certificate.missed_count = count;
}

// Raw logit of an entry, in every lane of a warp.
__device__ float logit(const Model& model, const void* input, const void* weight, const float* bias,
                       Index token, Index entry) {
  float sum = 0;
  for (Index h = threadIdx.x % 32; h < model.hidden; h += 32) {
    sum = fmaf(load_element(input, model.dtype, token * model.input_ld + h),
               load_element(weight, model.dtype, entry * model.weight_ld + h), sum);
  }
  sum = warp_sum(sum);
  return bias == nullptr ? sum : sum + bias[entry];
}
__device__ float student_logit(const Repair& r, Index token, Index entry) {
  return logit(r.student, r.tensors.student_input, r.tensors.student_weight, r.student_bias, token, entry);
}
__device__ float teacher_logit(const Repair& r, Index token, Index entry) {
  return logit(r.teacher, r.tensors.teacher_input, r.tensors.teacher_weight, r.teacher_bias, token, entry);
}
__device__ float probability(float x, const RowReference& ref, const Mixture& m) {
  return exp2_fast(fmaf(x - ref.x_ref, m.log2_scale, -ref.log2_sum_x));
}
__device__ float alpha_of(const Repair& r) {
  return r.alpha.scalars != nullptr ? r.alpha.scalars->alpha : r.alpha.alpha;
}

// One block a token that missed: its loss and its row of the input gradient, 64 entries at a time.
template <bool small_share>
__global__ void __launch_bounds__(repair_threads)
    repair_tokens(const __grid_constant__ Mixture m, const __grid_constant__ Repair r) {
  constexpr int entries = 64;
  __shared__ float x[entries], y[entries], change[entries], loss[entries / 4];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  for (unsigned i = blockIdx.x; i < *r.certificate.missed_count; i += gridDim.x) {
    const Index token = r.certificate.missed[i];
    const RowConstants c = r.constants[token];
    const float sum = r.certificate.dlogit_sums[token] * alpha_of(r);
    RowTerms terms{0, 0, 0};
    for (Index first = 0; first < r.vocab; first += entries) {
      for (int e = warp; e < entries; e += repair_warps) {
        const Index v = first + e;
        const float student = v < r.vocab ? student_logit(r, token, v) : -infinity();
        const float teacher = v < r.vocab ? teacher_logit(r, token, v) : -infinity();
        if (thread % 32 == 0) x[e] = student, y[e] = teacher;
      }
      __syncthreads();
      if (thread < entries) change[thread] = sum * probability(x[thread], c.ref, m);
      if (thread < entries / 4) {
        add_terms<Divergence::mixture, false, small_share, 4>(x + 4 * thread, y + 4 * thread, c.ref, m,
                                                              terms);
      }
      __syncthreads();
      const int end = static_cast<int>(min(static_cast<Index>(entries), r.vocab - first));
      for (Index h = thread; r.input_grad != nullptr && h < r.student.hidden; h += repair_threads) {
        float added = 0;
        for (int e = 0; e < end; ++e) {
          added = fmaf(
              change[e],
              load_element(r.tensors.student_weight, r.student.dtype, (first + e) * r.student.weight_ld + h),
              added);
        }
        r.input_grad[token * r.input_grad_ld + h] -= added;
      }
      __syncthreads();
    }
    if (thread < entries / 4) loss[thread] = terms.divergence;
    __syncthreads();
    if (thread == 0) {
      float total = 0;
      for (const float part : loss) total += part;
      r.token_loss[token] = divergence_in_nats(total);
    }
    __syncthreads();
  }
}

// A warp an entry of the vocabulary: its row of the weight gradient, 32 tokens that missed at a time.
__global__ void __launch_bounds__(repair_threads)
    repair_entries(const __grid_constant__ Mixture m, const __grid_constant__ Repair r) {
  const unsigned count = *r.certificate.missed_count;
  if (count == 0) return;
  const unsigned lane = threadIdx.x % 32;
  const Index step = static_cast<Index>(gridDim.x) * repair_warps;
  for (Index v = static_cast<Index>(blockIdx.x) * repair_warps + threadIdx.x / 32; v < r.vocab; v += step) {
    for (unsigned first = 0; first < count; first += 32) {
      const unsigned tokens = min(count - first, 32u);
      float change = 0;  // of token `lane`
      for (unsigned i = 0; i < tokens; ++i) {
        const Index token = r.certificate.missed[first + i];
        const float q = probability(student_logit(r, token, v), r.constants[token].ref, m);
        if (lane == i) change = r.certificate.dlogit_sums[token] * q;
      }
      const float total = warp_sum(change);
      if (lane == 0 && r.column_sum != nullptr) r.column_sum[v] -= total;
      if (r.weight_grad == nullptr) continue;
      change *= alpha_of(r);
      for (Index h0 = 0; h0 < r.student.hidden; h0 += 32) {  // all lanes, for the shuffle
        const Index h = min(h0 + lane, r.student.hidden - 1);
        float added = 0;
        for (unsigned i = 0; i < tokens; ++i) {
          const Index token = r.certificate.missed[first + i];
          added = fmaf(__shfl_sync(all_lanes, change, static_cast<int>(i)),
                       load_element(r.tensors.student_input, r.student.dtype, token * r.student.input_ld + h),
                       added);
        }
        if (h0 + lane >= r.student.hidden) continue;
        const Index at = v * r.weight_grad_ld + h;
        store_element(r.weight_grad, r.weight_grad_dtype, at,
                      load_element(r.weight_grad, r.weight_grad_dtype, at) - added);
      }
    }
  }
}

}  // namespace

Certificate take_certificate(const Settings& s, Workspace& workspace) {
  Certificate c;
  if (s.beta == 0 || s.beta == 1) return c;
  c.dlogit_sums = workspace.take<float>(s.tokens);
  c.missed_count = workspace.take<unsigned>(1);
  c.missed = workspace.take<std::int32_t>(s.tokens);
  return c;
}

void launch_certify(cudaStream_t stream, const Mixture& mixture, const Certificate& certificate,
                    const RowConstants* constants, Index tokens, float factor, Index additions) {
  launch("certifying the gradient", certify, dim3(1), certify_threads, stream, mixture, certificate,
         constants, tokens, factor, static_cast<float>(additions));
}

void launch_repair(cudaStream_t stream, const Device& device, const Mixture& mixture, const Repair& repair) {
  const char* doing = "repairing gradients";
  const auto blocks = [&](Index work) {
    return dim3(static_cast<unsigned>(std::clamp<Index>(work, 1, Index{2} * device.multiprocessors)));
  };
  launch(doing, mixture.small_share ? repair_tokens<true> : repair_tokens<false>, blocks(repair.tokens),
         repair_threads, stream, mixture, repair);
  if (repair.weight_grad == nullptr && repair.column_sum == nullptr) return;
  launch(doing, repair_entries, blocks(ceil_div(repair.vocab, repair_warps)), repair_threads, stream, mixture,
         repair);
}

}  // namespace fljsd::cuda
