// SPDX-License-Identifier: Apache-2.0
// Promise: sums that any tiling of the vocabulary can be added to, from which D and the row constants of the
// gradient follow. docs/one_pass.md derives them; reference/chernoff.h is the same arithmetic on the CPU.
//
//   Φ_k = Σ_v e^{(x_v + y_v)/2T}·e^{ikh(y_v − x_v)/T},   S_x = Σ_v e^{x_v/T},   S_y likewise,   k = 0..K
//   with A_k = e^{ikh·s}·Φ_k / sqrt(S_x·S_y) and s = logit(beta) + log(S_x/S_y):
//   D     = h(beta) − sqrt(beta(1−beta)) · Σ_k divergence_k · Re A_k
//   kappa = sqrt(beta/(1−beta)) · Σ_k Re[student_k · A_k]
//
// all relative to references (x_ref, y_ref) near the row's maxima. One warp sweeps one slice of a row's tile.
// Per entry two exponentials give all three kinds of term: u = e^{(x−x_ref)/2T}, v likewise; S_x += u²,
// S_y += v², modulus u·v. Frequencies k = 5j + l, |l| <= 2, come from a product basis,
//
//   u·v·{1, c, s, c², cs}(θ) ⊗ {1, c, s, c², cs, [c³, c²s, c⁴, c³s]}(5θ),   c = cos, s = sin, θ = h(y − x)/T
//
// so that a moment costs one instruction an entry; powers become harmonics (cos 2θ = 2c² − 1, ...) when a
// lane empties its moments. 52 instructions an entry for K = 12, 6 of them special functions (counted in the
// sm_90a code of the inner loop), and 4 for loads and maxima; 24 more for K = 22; 8 bytes read.
//
// Error budget, relative to exact arithmetic on the same logits. Quadrature: one_pass_weights.h. Sums: a lane
// adds at most 192 terms before they join the record in a compensated sum (two floats), so the number of
// tiles does not matter; terms are good to 2^-20.5. Together 1.5e-6 in D and in kappa, each times Σ_v
// sqrt(p_v q_v).
#include "cuda/chernoff_kernels.h"

#include <algorithm>

#include "cuda/device_math.cuh"
#include "cuda/failure.h"
#include "cuda/row_divergence.cuh"

namespace fljsd::cuda {
namespace {

constexpr int warps_per_block = 4;
constexpr float headroom = 16;      // half log2 units that a logit may lie above the reference: 22 nats
constexpr float negligible = -150;  // 2^-150 is 0 in fp32 arithmetic that flushes subnormals

// Adds v to the unevaluated sum hi + lo. An infinite or NaN sum is its own answer.
__device__ __forceinline__ void add_compensated(float& hi, float& lo, float v) {
  const float sum = hi + v;
  const float back = sum - hi;
  const float lost = (hi - (sum - back)) + (v - back);
  if (fabsf(sum) < infinity()) lo += lost;
  hi = sum;
}

// Sums N values over the lanes of a warp, each lane ending with a few of the totals: at every level a lane
// sends half of its values to its partner and adds what it receives to the other half. The totals go to
// out[0..N). About N shuffles.
template <int N, int distance>
__device__ __forceinline__ void reduce_scatter(const float (&values)[N], int lane, int start, int end,
                                               float* out) {
  constexpr int half = (N + 1) / 2;
  const bool upper = (lane & distance) != 0;
  float kept[half];
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const float low = values[i], high = half + i < N ? values[half + i < N ? half + i : 0] : 0;
    kept[i] = (upper ? high : low) + __shfl_xor_sync(all_lanes, upper ? low : high, distance);
  }
  start = upper ? start + half : start;
  end = upper ? end : min(end, start + half);
  if constexpr (distance > 1) {
    reduce_scatter<half, distance / 2>(kept, lane, start, end, out);
  } else {
#pragma unroll
    for (int i = 0; i < half; ++i) {
      if (start + i < end) out[start + i] = kept[i];
    }
  }
}

template <Basis basis>
struct Moments {
  static constexpr int rows = basis == Basis::twelve ? 5 : 9;  // functions of 5θ
  static constexpr int last = last_frequency(basis);
  static constexpr int count = 5 * rows + 2;   // moments of accumulate(): products, S_x, S_y
  static constexpr int values = 2 * last + 3;  // of a record: Φ_0, Re Φ_1, Im Φ_1, ..., S_x, S_y: as many
  static constexpr int stride =
      basis == Basis::twelve ? 32 : 56;  // hi at [0, stride), lo at [stride, 2·stride)
  static constexpr int per_lane = (values + 31) / 32;
  static_assert(count == values && values + 2 <= stride);

  float m[count];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < count; ++i) m[i] = 0;
  }

  // a, b: student and teacher logit in half log2 units, relative to the references.
  __device__ __forceinline__ void add(float a, float b, float phase_step) {
    a = max_or_nan(a, negligible);  // −inf would make the phase NaN
    b = max_or_nan(b, negligible);
    const float u = exp2_fast(a), v = exp2_fast(b);
    // Products are rounded before they are added, here as in g[0]: where the models are equal all three sums
    // have the same bits, every Φ_k too, and D and the gradient are 0 up to rounding in double. (__fmul_rn
    // is never fused; a fused S_x would save two instructions an entry and cost 1e-7 there.)
    m[count - 2] += __fmul_rn(u, u);
    m[count - 1] += __fmul_rn(v, v);
    const float theta = (b - a) * phase_step;
    float s1, c1, s5, c5;
    sincos_fast(theta, s1, c1);
    sincos_fast(5 * theta, s5, c5);
    float g[5];
    g[0] = __fmul_rn(u, v);
    g[1] = g[0] * c1;
    g[2] = g[0] * s1;
    g[3] = g[1] * c1;
    g[4] = g[1] * s1;
    float w[rows];
    w[1] = c5;
    w[2] = s5;
    w[3] = c5 * c5;
    w[4] = c5 * s5;
    if constexpr (rows == 9) {
      w[5] = w[3] * c5;
      w[6] = w[3] * s5;
      w[7] = w[3] * w[3];
      w[8] = w[3] * w[4];
    }
#pragma unroll
    for (int l = 0; l < 5; ++l) m[l] += g[l];
#pragma unroll
    for (int j = 1; j < rows; ++j) {
#pragma unroll
      for (int l = 0; l < 5; ++l) m[5 * j + l] = fmaf(w[j], g[l], m[5 * j + l]);
    }
  }

  // Harmonic (j, l) of the totals: row j in {1, cos 5θ, sin 5θ, cos 10θ, ...}, column l in {1, cos θ, sin θ,
  // cos 2θ, sin 2θ}.
  static __device__ __forceinline__ float harmonic(const float* totals, int j, int l) {
    const auto column = [&](int row) {
      const float value = totals[5 * row + l];
      return l == 3 ? 2 * value - totals[5 * row] : l == 4 ? 2 * value : value;
    };
    switch (j) {
      case 3: return 2 * column(3) - column(0);                // cos 2φ = 2c² − 1
      case 4: return 2 * column(4);                            // sin 2φ = 2cs
      case 5: return fmaf(-3, column(1), 4 * column(5));       // cos 3φ = 4c³ − 3c, rounded once
      case 6: return 4 * column(6) - column(2);                // sin 3φ = 4c²s − s
      case 7: return 8 * (column(7) - column(3)) + column(0);  // cos 4φ = 8c⁴ − 8c² + 1
      case 8: return 8 * column(8) - 4 * column(4);            // sin 4φ = 8c³s − 4cs
      default: return column(j);
    }
  }

  // Value i of a record from the totals: Φ_{5j+l} = Σ u·v·e^{i·5jθ}·e^{ilθ}.
  static __device__ float value(const float* totals, int i) {
    if (i >= values - 2) return totals[i];
    const int k = (i + 1) / 2;
    const bool imaginary = i > 0 && i % 2 == 0;
    const int j = (k + 2) / 5, l = k - 5 * j, columns = abs(l);
    // cos(5jθ), sin(5jθ) are rows 2j−1 and 2j; cos(lθ), sin(lθ) columns 2l−1 and 2l; sin changes sign with l
    const auto product = [&](bool row_sine, bool column_sine) {
      if ((row_sine && j == 0) || (column_sine && l == 0)) return 0.0f;
      const int row = j == 0 ? 0 : 2 * j - (row_sine ? 0 : 1);
      const int column = l == 0 ? 0 : 2 * columns - (column_sine ? 0 : 1);
      const float h = harmonic(totals, row, column);
      return column_sine && l < 0 ? -h : h;
    };
    return imaginary ? product(true, false) + product(false, true)
                     : product(false, false) - product(true, true);
  }
};

// Eight entries of a lane: two vectors of four, 32 vectors apart. Entries at or past the slice's end are
// −inf.
struct TileBatch {
  float x[8], y[8];

  __device__ __forceinline__ void set(int part, const float4& x4, const float4& y4) {
    x[4 * part] = x4.x, x[4 * part + 1] = x4.y, x[4 * part + 2] = x4.z, x[4 * part + 3] = x4.w;
    y[4 * part] = y4.x, y[4 * part + 1] = y4.y, y[4 * part + 2] = y4.z, y[4 * part + 3] = y4.w;
  }
  // data and bias point to the lane's first entry; `left`: entries of the slice from there on; `whole`: more
  // than enough for every lane of the warp.
  __device__ __forceinline__ void load(const float* student, const float* teacher, int left, bool whole) {
    if (whole) {
      set(0, load4(student), load4(teacher));
      set(1, load4(student + 128), load4(teacher + 128));
      return;
    }
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      float4 x4 = make_float4(-infinity(), -infinity(), -infinity(), -infinity()), y4 = x4;
      const int remaining = left - 128 * part;
      if (remaining > 0) {
        x4 = load4(student + 128 * part);
        y4 = load4(teacher + 128 * part);
        if (remaining < 2) x4.y = y4.y = -infinity();
        if (remaining < 3) x4.z = y4.z = -infinity();
        if (remaining < 4) x4.w = y4.w = -infinity();
      }
      set(part, x4, y4);
    }
  }
  static __device__ __forceinline__ void add_bias(float (&values)[8], const float* bias, int left) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = 128 * (i / 4) + i % 4;
      if (at < left) values[i] += bias[at];
    }
  }
};

// The slice of a row that a warp sweeps, and its record.
struct Slice {
  Index row;
  int begin, end;
  float* record;

  __device__ Slice(const LogitTile& tile, const OnePassState& state, Index record_floats) {
    const Index index = static_cast<Index>(blockIdx.x) * warps_per_block + threadIdx.x / 32;
    row = index / state.slices;
    const int slice = static_cast<int>(index % state.slices), columns = static_cast<int>(tile.columns);
    const int pieces = static_cast<int>(state.slices),
              width = ((columns + pieces - 1) / pieces + 127) / 128 * 128;
    begin = slice * width;
    end = min(begin + width, columns);
    record = state.data + index * record_floats;
  }
};

__device__ __forceinline__ bool is_ignored(const Ignored& ignored, Index row) {
  return ignored.labels != nullptr && ignored.labels[row] == ignored.ignore_index;
}

// The largest x and y of a batch, over the lane.
__device__ __forceinline__ void batch_max(const TileBatch& b, float& x, float& y) {
  x = b.x[0], y = b.y[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) {
    x = fmaxf(x, b.x[i]);
    y = fmaxf(y, b.y[i]);
  }
}

// References are numbers in (half) log2 units, so that relative logits fmaf(x, scale, −ref) are rounded once.
// They start at the lowest finite number, and rise when a batch has a logit more than `headroom` above.
struct References {
  float x, y;

  __device__ __forceinline__ bool cover(float max_x, float max_y, float scale) const {
    return __all_sync(all_lanes,
                      !(fmaf(max_x, scale, -x) > headroom) && !(fmaf(max_y, scale, -y) > headroom));
  }
  __device__ __forceinline__ References raised(float max_x, float max_y, float scale) const {
    return {fmaxf(x, warp_max(max_x) * scale), fmaxf(y, warp_max(max_y) * scale)};
  }
};

template <Basis basis>
__global__ void __launch_bounds__(32 * warps_per_block, 4)
    accumulate(const __grid_constant__ LogitTile tile, OnePassState state, float log2_scale, float phase_step,
               bool first) {
  using M = Moments<basis>;
  const Slice slice(tile, state, 2 * M::stride);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (slice.row >= tile.rows || is_ignored(tile.ignored, slice.row)) return;
  const float* student = tile.student + slice.row * tile.ld + 4 * lane;
  const float* teacher = tile.teacher + slice.row * tile.ld + 4 * lane;
  const float scale = 0.5f * log2_scale;
  __shared__ float scratch[warps_per_block][2 * M::stride];
  float* mine = scratch[threadIdx.x / 32];

  // The record: lane i holds values i and i + 32, each as hi + lo.
  float hi[M::per_lane], lo[M::per_lane];
  References ref{-largest_float, -largest_float};
  if (first) {
#pragma unroll
    for (int r = 0; r < M::per_lane; ++r) hi[r] = lo[r] = 0;
  } else {
    ref = {slice.record[M::values], slice.record[M::values + 1]};
#pragma unroll
    for (int r = 0; r < M::per_lane; ++r) {
      const int i = lane + 32 * r;
      hi[r] = i < M::values ? slice.record[i] : 0;
      lo[r] = i < M::values ? slice.record[M::stride + i] : 0;
    }
  }

  M moments;
  moments.clear();
  // Of 8 terms a lane. Emptying the moments takes about a thousand instructions of a warp.
  constexpr int most_batches = 24;
  int batches = 0;
  // The next batch is on its way while one is worked on.
  TileBatch b, next;
  const auto load = [&](int column) {
    if (column < slice.end) {
      next.load(student + column, teacher + column, slice.end - column - 4 * lane, column + 256 <= slice.end);
    }
  };
  load(slice.begin);
  for (int column = slice.begin;; column += 256) {
    const bool done = column >= slice.end;
    b = next;
    load(column + 256);
    float max_x = 0, max_y = 0;
    if (!done) {
      const int left = slice.end - column - 4 * lane;
      if (tile.student_bias != nullptr) TileBatch::add_bias(b.x, tile.student_bias + column + 4 * lane, left);
      if (tile.teacher_bias != nullptr) TileBatch::add_bias(b.y, tile.teacher_bias + column + 4 * lane, left);
      batch_max(b, max_x, max_y);
    }
    const bool covered = done || ref.cover(max_x, max_y, scale);
    if (done || !covered || batches == most_batches) {
      // Empty the moments into the record.
      reduce_scatter<M::count, 16>(moments.m, lane, 0, M::count, mine);
      __syncwarp();
#pragma unroll
      for (int r = 0; r < M::per_lane; ++r) {
        const int i = lane + 32 * r;
        if (i < M::values) add_compensated(hi[r], lo[r], M::value(mine, i));
      }
      __syncwarp();
      if (done) break;
      moments.clear();
      batches = 0;
    }
    if (!covered) {
      // Raise the references: Φ_k turns by the change of its phase and shrinks with both; S_x and S_y shrink.
      const References raised = ref.raised(max_x, max_y, scale);
      const double dx = static_cast<double>(raised.x) - ref.x, dy = static_cast<double>(raised.y) - ref.y;
      const bool empty = ref.x == -largest_float || ref.y == -largest_float;  // then Φ is 0
#pragma unroll
      for (int r = 0; r < M::per_lane; ++r) {
        const int i = lane + 32 * r;
        if (i < M::values) mine[i] = hi[r], mine[M::stride + i] = lo[r];
      }
      __syncwarp();
#pragma unroll
      for (int r = 0; r < M::per_lane; ++r) {
        const int i = lane + 32 * r;
        if (i >= M::values) continue;
        if (i >= M::values - 2) {
          const double shrunk =
              exp2(-2 * (i == M::values - 2 ? dx : dy)) * (static_cast<double>(hi[r]) + lo[r]);
          hi[r] = static_cast<float>(shrunk);
          lo[r] = static_cast<float>(shrunk - hi[r]);
        } else if (empty) {
          hi[r] = lo[r] = 0;
        } else {
          const int k = (i + 1) / 2;
          const bool imaginary = i > 0 && i % 2 == 0;
          const int real_at = i == 0 ? 0 : 2 * k - 1, imaginary_at = 2 * k;
          double sine, cosine;
          sincos(-k * (dy - dx) * static_cast<double>(phase_step), &sine, &cosine);
          const double re = static_cast<double>(mine[real_at]) + mine[M::stride + real_at];
          const double im =
              i == 0 ? 0 : static_cast<double>(mine[imaginary_at]) + mine[M::stride + imaginary_at];
          const double turned =
              exp2(-(dx + dy)) * (imaginary ? re * sine + im * cosine : re * cosine - im * sine);
          hi[r] = static_cast<float>(turned);
          lo[r] = static_cast<float>(turned - hi[r]);
        }
      }
      __syncwarp();
      ref = raised;
    }
    ++batches;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      moments.add(fmaf(b.x[i], scale, -ref.x), fmaf(b.y[i], scale, -ref.y), phase_step);
    }
  }
#pragma unroll
  for (int r = 0; r < M::per_lane; ++r) {
    const int i = lane + 32 * r;
    if (i < M::values) {
      slice.record[i] = hi[r];
      slice.record[M::stride + i] = lo[r];
    }
  }
  if (lane == 0) slice.record[M::values] = ref.x, slice.record[M::values + 1] = ref.y;
}

// beta = 0 and 1: KL(first‖second) needs S_x, S_y and N = Σ e_first·(first − second), logits relative to the
// references in log2 units. A record: {hi, lo} of S_x, S_y, N and the references. No quadrature.
constexpr int kl_record = 8;

template <Divergence kind>
__global__ void __launch_bounds__(32 * warps_per_block)
    accumulate_kl(const __grid_constant__ LogitTile tile, OnePassState state, float log2_scale, bool first) {
  constexpr bool teacher_first = kind == Divergence::teacher_kl;
  const Slice slice(tile, state, kl_record);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (slice.row >= tile.rows || is_ignored(tile.ignored, slice.row)) return;
  const float* student = tile.student + slice.row * tile.ld + 4 * lane;
  const float* teacher = tile.teacher + slice.row * tile.ld + 4 * lane;
  References ref{-largest_float, -largest_float};
  float hi[3] = {}, lo[3] = {};
  if (!first) {
#pragma unroll
    for (int i = 0; i < 3; ++i) hi[i] = slice.record[i], lo[i] = slice.record[3 + i];
    ref = {slice.record[6], slice.record[7]};
  }
  float sum[3] = {};
  int batches = 0;
  for (int column = slice.begin;; column += 256) {
    const bool done = column >= slice.end;
    TileBatch b;
    float max_x = 0, max_y = 0;
    if (!done) {
      const int left = slice.end - column - 4 * lane;
      b.load(student + column, teacher + column, left, column + 256 <= slice.end);
      if (tile.student_bias != nullptr) TileBatch::add_bias(b.x, tile.student_bias + column + 4 * lane, left);
      if (tile.teacher_bias != nullptr) TileBatch::add_bias(b.y, tile.teacher_bias + column + 4 * lane, left);
      batch_max(b, max_x, max_y);
    }
    const bool covered = done || ref.cover(max_x, max_y, log2_scale);
    if (done || !covered || batches == 8) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        add_compensated(hi[i], lo[i], warp_sum(sum[i]));
        sum[i] = 0;
      }
      if (done) break;
      batches = 0;
    }
    if (!covered) {
      const References raised = ref.raised(max_x, max_y, log2_scale);
      const double dx = static_cast<double>(raised.x) - ref.x, dy = static_cast<double>(raised.y) - ref.y;
      const double first_sum =
          teacher_first ? static_cast<double>(hi[1]) + lo[1] : static_cast<double>(hi[0]) + lo[0];
      const double first_factor = exp2(-(teacher_first ? dy : dx));
      // first − second falls by the difference of the two rises
      double n = static_cast<double>(hi[2]) + lo[2];
      if (first_sum > 0 && fabsf(hi[2]) < infinity()) n -= (teacher_first ? dy - dx : dx - dy) * first_sum;
      if (fabsf(hi[2]) < infinity()) n *= first_factor;
      hi[2] = static_cast<float>(n);
      lo[2] = fabsf(hi[2]) < infinity() ? static_cast<float>(n - hi[2]) : 0;
      const auto factor_x = static_cast<float>(exp2(-dx)), factor_y = static_cast<float>(exp2(-dy));
      hi[0] *= factor_x, lo[0] *= factor_x;
      hi[1] *= factor_y, lo[1] *= factor_y;
      ref = raised;
    }
    ++batches;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float a = fmaf(b.x[i], log2_scale, -ref.x), c = fmaf(b.y[i], log2_scale, -ref.y);
      const float ea = exp2_fast(a), ec = exp2_fast(c);
      sum[0] += ea;
      sum[1] += ec;
      const float of_first = teacher_first ? c : a, difference = teacher_first ? c - a : a - c;
      // Probability 0 in first: nothing, whatever second is. Only in second: infinity, however small first
      // is.
      const float term = difference == infinity() ? difference : (teacher_first ? ec : ea) * difference;
      sum[2] += of_first == -infinity() ? 0 : term;
    }
  }
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < 3; ++i) slice.record[i] = hi[i], slice.record[3 + i] = lo[i];
    slice.record[6] = ref.x;
    slice.record[7] = ref.y;
  }
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

constexpr int dlogits_threads = 256;

// One block a row of the tile.
template <Divergence kind, bool small_share>
__global__ void __launch_bounds__(dlogits_threads)
    tile_dlogits(const __grid_constant__ LogitTile tile, const __grid_constant__ Mixture m,
                 const RowConstants* constants, const __grid_constant__ Dlogits dlogits, bool first) {
  const Index row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), columns = static_cast<int>(tile.columns);
  const RowConstants c = constants[row];
  const float* student = tile.student + row * tile.ld;
  const float* teacher = tile.teacher + row * tile.ld;
  char* out = static_cast<char*>(dlogits.data) + row * dlogits.ld * (dlogits.dtype == FLJSD_F32 ? 4 : 2);
  float residual = 0;
  if (c.uses_kappa < 0 || !(c.constant == c.constant)) {
    const float value = c.uses_kappa < 0 ? 0 : nan_value();
    const float g[4] = {value, value, value, value};
    for (int column = 4 * thread; column < columns; column += 4 * dlogits_threads)
      store4(out, dlogits.dtype, column, g);
  } else {
    constexpr int step = 4 * dlogits_threads;
    for (int column = 4 * thread; column < columns; column += 2 * step) {
      // Two vectors of four, loaded before either is used.
      float4 x4[2], y4[2];
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int at = column + part * step;
        if (at < columns) x4[part] = load4(student + at), y4[part] = load4(teacher + at);
      }
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int at = column + part * step;
        if (at >= columns) break;
        float x[4] = {x4[part].x, x4[part].y, x4[part].z, x4[part].w};
        float y[4] = {y4[part].x, y4[part].y, y4[part].z, y4[part].w};
        float g[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (at + e >= columns) x[e] = y[e] = -infinity();
          if (tile.student_bias != nullptr && at + e < columns) x[e] += tile.student_bias[at + e];
          if (tile.teacher_bias != nullptr && at + e < columns) y[e] += tile.teacher_bias[at + e];
        }
        gradient<kind, small_share, 4>(x, y, c, m, dlogits.factor, g);
        residual += store4(out, dlogits.dtype, at, g);
      }
    }
  }
  if (dlogits.residual == nullptr) return;
  __shared__ float warp_residual[dlogits_threads / 32];
  residual = warp_sum(residual);
  if (thread % 32 == 0) warp_residual[thread / 32] = residual;
  __syncthreads();
  if (thread != 0) return;
  residual = first ? 0 : dlogits.residual[row];
  for (int w = 0; w < dlogits_threads / 32; ++w) residual += warp_residual[w];
  dlogits.residual[row] = residual;
}

template <class... Parameters, class... Values>
void launch(const char* doing, void (*kernel)(Parameters...), Index blocks, int threads, cudaStream_t stream,
            const Values&... values) {
  if (blocks > 0x7fffffff)
    fail(FLJSD_UNSUPPORTED, "A tile needs ", blocks, " blocks, more than a grid can have.");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(values)...), doing);
}

}  // namespace

Index state_floats(Divergence kind, Basis basis) {
  if (kind != Divergence::mixture) return kl_record;
  return 2 * (basis == Basis::twelve ? Moments<Basis::twelve>::stride : Moments<Basis::twenty_two>::stride);
}

void launch_accumulate(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                       float phase_step, const LogitTile& tile, const OnePassState& state, bool first) {
  const char* doing = "launching the one-pass statistics";
  const Index blocks = ceil_div(tile.rows * state.slices, warps_per_block);
  const int threads = 32 * warps_per_block;
  if (kind == Divergence::mixture) {
    launch(doing, basis == Basis::twelve ? accumulate<Basis::twelve> : accumulate<Basis::twenty_two>, blocks,
           threads, stream, tile, state, mixture.log2_scale, phase_step, first);
  } else {
    launch(doing,
           kind == Divergence::teacher_kl ? accumulate_kl<Divergence::teacher_kl>
                                          : accumulate_kl<Divergence::student_kl>,
           blocks, threads, stream, tile, state, mixture.log2_scale, first);
  }
}

void launch_finish(cudaStream_t stream, Divergence kind, Basis basis, const Mixture& mixture,
                   const OnePassWeights& weights, const OnePassState& state, Index rows, Ignored ignored,
                   float* token_loss, RowConstants* constants) {
  const char* doing = "finishing the one-pass statistics";
  if (kind == Divergence::mixture) {
    launch(doing, basis == Basis::twelve ? finish<Basis::twelve> : finish<Basis::twenty_two>,
           ceil_div(rows, warps_per_block), 32 * warps_per_block, stream, weights, mixture, state, rows,
           ignored, token_loss, constants);
  } else {
    launch(doing,
           kind == Divergence::teacher_kl ? finish_kl<Divergence::teacher_kl>
                                          : finish_kl<Divergence::student_kl>,
           ceil_div(rows, 128), 128, stream, mixture, state, rows, ignored, token_loss, constants);
  }
}

void launch_tile_dlogits(cudaStream_t stream, Divergence kind, const Mixture& mixture, const LogitTile& tile,
                         const RowConstants* constants, const Dlogits& dlogits, bool first) {
  static_assert(sizeof(RowConstants) == row_constants_bytes);
  const auto kernel = kind == Divergence::teacher_kl   ? tile_dlogits<Divergence::teacher_kl, false>
                      : kind == Divergence::student_kl ? tile_dlogits<Divergence::student_kl, false>
                      : mixture.small_share            ? tile_dlogits<Divergence::mixture, true>
                                                       : tile_dlogits<Divergence::mixture, false>;
  launch("launching the gradient of a tile", kernel, tile.rows, dlogits_threads, stream, tile, mixture,
         constants, dlogits, first);
}

}  // namespace fljsd::cuda
