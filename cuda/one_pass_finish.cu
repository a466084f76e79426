// SPDX-License-Identifier: Apache-2.0
// From finished records to losses and to the row constants of the gradient.
#include "cuda/launch.h"
#include "cuda/one_pass_moments.cuh"
#include "cuda/row_divergence.cuh"

namespace fljsd::cuda {
namespace {

constexpr int warps_per_block = 4;

__device__ __forceinline__ bool is_ignored(const Ignored& ignored, Index row) {
  return ignored.labels != nullptr && ignored.labels[row] == ignored.ignore_index;
}

// Row constants from log-sum-exps: x_ref_units etc. are references in log2 units (full, not half), sums in
// double.
__device__ RowConstants row_constants(double ref_x, double ref_y, double sum_x, double sum_y, double constant,
                                      bool uses_kappa, const Mixture& m) {
  const double scale2 = m.log2_scale;
  const double nats = 0.693147180559945309;
  RowConstants c;
  c.ref.x_ref = static_cast<float>(ref_x / scale2);
  c.ref.y_ref = static_cast<float>(ref_y / scale2);
  const double log2_x = log2(sum_x) + (ref_x - c.ref.x_ref * scale2);
  const double log2_y = log2(sum_y) + (ref_y - c.ref.y_ref * scale2);
  c.ref.log2_sum_x = static_cast<float>(log2_x);
  c.ref.log2_sum_y = static_cast<float>(log2_y);
  const double offset = static_cast<double>(c.ref.y_ref) - c.ref.x_ref;
  c.ref.offset = static_cast<float>(offset);
  c.ref.shift =
      static_cast<float>((log2_y - log2_x) * nats + (offset - c.ref.offset) * static_cast<double>(m.scale));
  c.constant = static_cast<float>(constant / nats);
  c.uses_kappa = uses_kappa ? 1.0f : 0.0f;
  return c;
}

__device__ void write_ignored(Index row, float* token_loss, RowConstants* constants) {
  token_loss[row] = 0;
  if (constants != nullptr) constants[row] = RowConstants{{}, 0, -1};
}
__device__ void write_without_distribution(Index row, float* token_loss, RowConstants* constants) {
  token_loss[row] = nan_value();
  if (constants != nullptr) constants[row] = RowConstants{{}, nan_value(), 0};
}

// One warp a token; lane k finishes frequency k.
template <Basis basis>
__global__ void __launch_bounds__(32 * warps_per_block)
    finish(const __grid_constant__ OnePassWeights weights, const __grid_constant__ Mixture m,
           OnePassState state, Index rows, Ignored ignored, float* token_loss, RowConstants* constants) {
  using M = Moments<basis>;
  const Index row = static_cast<Index>(blockIdx.x) * warps_per_block + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, k = min(lane, M::last);
  if (row >= rows) return;
  if (is_ignored(ignored, row)) {
    if (lane == 0) write_ignored(row, token_loss, constants);
    return;
  }
  const float* records = state.data + row * state.slices * 2 * M::stride;
  double ref_x = -largest_float, ref_y = -largest_float;
  for (Index s = 0; s < state.slices; ++s) {
    ref_x = fmax(ref_x, static_cast<double>(records[s * 2 * M::stride + M::values]));
    ref_y = fmax(ref_y, static_cast<double>(records[s * 2 * M::stride + M::values + 1]));
  }
  double re = 0, im = 0, sum_x = 0, sum_y = 0;
  for (Index s = 0; s < state.slices; ++s) {
    const float* record = records + s * 2 * M::stride;
    const auto value = [&](int i) { return static_cast<double>(record[i]) + record[M::stride + i]; };
    const double dx = ref_x - record[M::values], dy = ref_y - record[M::values + 1];
    sum_x += value(M::values - 2) * exp2(-2 * dx);
    sum_y += value(M::values - 1) * exp2(-2 * dy);
    const double factor = exp2(-(dx + dy));
    if (factor == 0) continue;  // an empty slice, or one that no longer matters; its phase may be meaningless
    double sine, cosine;
    sincos(-k * (dy - dx) * static_cast<double>(weights.phase_step), &sine, &cosine);
    const double slice_re = value(k == 0 ? 0 : 2 * k - 1), slice_im = k == 0 ? 0 : value(2 * k);
    re += factor * (slice_re * cosine - slice_im * sine);
    im += factor * (slice_re * sine + slice_im * cosine);
  }
  if (!(sum_x > 0 && sum_x < 1e300 && sum_y > 0 && sum_y < 1e300)) {
    if (lane == 0) write_without_distribution(row, token_loss, constants);
    return;
  }
  // Angle of frequency k at s = logit(beta) + log(S_x/S_y); phase_step is per half log2 unit, of which a nat
  // has log2(e)/2.
  const double step = weights.phase_step * 0.721347520444481704;
  const double beta = weights.beta, logit = log(beta) - log1p(-beta);
  double sine, cosine;
  sincos(k * step * (logit + log(sum_x / sum_y)), &sine, &cosine);
  const double root = 1 / sqrt(sum_x * sum_y);
  const double phi_re = root * (re * cosine - im * sine), phi_im = root * (re * sine + im * cosine);
  const bool counts = lane <= M::last;
  const double d_sum = warp_sum(counts ? weights.divergence[k] * phi_re : 0.0);
  const double kappa_sum =
      warp_sum(counts ? weights.student_real[k] * phi_re - weights.student_imaginary[k] * phi_im : 0.0);
  if (lane != 0) return;
  // What lies outside [0, h(beta)] or [0, −log(1−beta)] is quadrature or rounding error: the nearest end is
  // closer to the truth.
  const double most = -beta * log(beta) - (1 - beta) * log1p(-beta), most_kappa = -log1p(-beta);
  const double divergence = fmin(fmax(most - sqrt(beta * (1 - beta)) * d_sum, 0.0), most);
  token_loss[row] = static_cast<float>(divergence);
  if (constants == nullptr) return;
  const double kappa = fmin(fmax(sqrt(beta / (1 - beta)) * kappa_sum, 0.0), most_kappa);
  const double student_kl = most_kappa - kappa;
  const bool uses_kappa = kappa < student_kl;
  constants[row] =
      row_constants(2 * ref_x, 2 * ref_y, sum_x, sum_y, uses_kappa ? kappa : -student_kl, uses_kappa, m);
}

// One thread a token.
template <Divergence kind>
__global__ void __launch_bounds__(128)
    finish_kl(const __grid_constant__ Mixture m, OnePassState state, Index rows, Ignored ignored,
              float* token_loss, RowConstants* constants) {
  constexpr bool teacher_first = kind == Divergence::teacher_kl;
  const Index row = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  if (is_ignored(ignored, row)) {
    write_ignored(row, token_loss, constants);
    return;
  }
  const float* records = state.data + row * state.slices * kl_record;
  double ref_x = -largest_float, ref_y = -largest_float;
  for (Index s = 0; s < state.slices; ++s) {
    ref_x = fmax(ref_x, static_cast<double>(records[s * kl_record + 6]));
    ref_y = fmax(ref_y, static_cast<double>(records[s * kl_record + 7]));
  }
  double sum_x = 0, sum_y = 0, n = 0;
  for (Index s = 0; s < state.slices; ++s) {
    const float* record = records + s * kl_record;
    const auto value = [&](int i) { return static_cast<double>(record[i]) + record[3 + i]; };
    const double dx = ref_x - record[6], dy = ref_y - record[7];
    const double x = value(0) * exp2(-dx), y = value(1) * exp2(-dy);
    sum_x += x;
    sum_y += y;
    const double first = teacher_first ? y : x;
    const double slice_n =
        fabsf(record[2]) < infinity() ? value(2) * exp2(-(teacher_first ? dy : dx)) : record[2];
    n += first > 0 ? slice_n - (teacher_first ? dy - dx : dx - dy) * first : slice_n;
  }
  if (!(sum_x > 0 && sum_x < 1e300 && sum_y > 0 && sum_y < 1e300)) {
    write_without_distribution(row, token_loss, constants);
    return;
  }
  // KL(first‖second) = Σ first·(first − second)/S_first − log(S_first/S_second)
  const double mean = n * 0.693147180559945309 / (teacher_first ? sum_y : sum_x);
  const double divergence = fmax(mean - (teacher_first ? log(sum_y / sum_x) : log(sum_x / sum_y)), 0.0);
  token_loss[row] = static_cast<float>(divergence);
  if (constants != nullptr) constants[row] = row_constants(ref_x, ref_y, sum_x, sum_y, divergence, false, m);
}

}  // namespace

Index state_floats(Divergence kind, Basis basis) {
  if (kind != Divergence::mixture) return kl_record;
  return 2 * (basis == Basis::twelve ? Moments<Basis::twelve>::stride : Moments<Basis::twenty_two>::stride);
}

void launch_finish(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                   const OnePassWeights& weights, const OnePassState& state, Index rows, Ignored ignored,
                   float* token_loss, RowConstants* constants) {
  const char* doing = "finishing the one-pass statistics";
  if (kind == Divergence::mixture) {
    launch(doing, basis == Basis::twelve ? finish<Basis::twelve> : finish<Basis::twenty_two>,
           grid_of(ceil_div(rows, warps_per_block)), 32 * warps_per_block, stream, weights, mixture, state,
           rows, ignored, token_loss, constants);
  } else {
    launch(doing,
           kind == Divergence::teacher_kl ? finish_kl<Divergence::teacher_kl>
                                          : finish_kl<Divergence::student_kl>,
           grid_of(ceil_div(rows, 128)), 128, stream, mixture, state, rows, ignored, token_loss, constants);
  }
}

}  // namespace fljsd::cuda
