// SPDX-License-Identifier: Apache-2.0
// The one-pass statistics in double: how records are turned to other references, added up over the slices of
// a row, and become D, kappa and row constants.
#pragma once

#include <cstdint>

#include "cuda/one_pass_record.cuh"
#include "cuda/row_constants.cuh"

namespace fljsd::cuda {

FLJSD_HOST_DEVICE void sine_and_cosine(double angle, double& sine, double& cosine) {
#if defined(__CUDA_ARCH__)
  // Reduces its argument exactly, at a third of the cost of sincos.
  sincospi(0.318309886183790672 * angle, &sine, &cosine);
#else
  sine = std::sin(angle);
  cosine = std::cos(angle);
#endif
}

// When references rise by dx and dy (half log2 units), Φ_k turns by the change of its phase and shrinks with
// both; S_x and S_y shrink.
struct Turn {
  double dx, dy, phase_step;
  bool empty;  // no entry of one of the models yet: Φ is 0

  FLJSD_HOST_DEVICE Turn(const ModelReferences& from, const ModelReferences& to, float scale, float step)
      : dx(to.x.total(scale) - from.x.total(scale)),
        dy(to.y.total(scale) - from.y.total(scale)),
        phase_step(step),
        empty(from.x.is_empty() || from.y.is_empty()) {}

  // e^{i·angle}·(re + i·im), not yet shrunk.
  FLJSD_HOST_DEVICE void turn(int k, double& re, double& im) const {
    double sine, cosine;
    sine_and_cosine(-k * (dy - dx) * phase_step, sine, cosine);
    const double before = re;
    re = before * cosine - im * sine;
    im = before * sine + im * cosine;
  }
  // Value i of a record whose values are old(0), old(1), ...
  template <class M, class Old>
  FLJSD_HOST_DEVICE double value(int i, const Old& old) const {
    if (i >= M::values - 2) return exp2(-2 * (i == M::values - 2 ? dx : dy)) * old(i);
    if (empty) return 0;
    const int k = (i + 1) / 2;
    double re = old(i == 0 ? 0 : 2 * k - 1), im = i == 0 ? 0 : old(2 * k);
    turn(k, re, im);
    return exp2(-(dx + dy)) * (i > 0 && i % 2 == 0 ? im : re);
  }
};

// By what u, v and their product shrink; `both` is 0 for an empty slice.
struct Shrink {
  double x, y, both;

  Shrink() = default;
  FLJSD_HOST_DEVICE explicit Shrink(const Turn& turn)
      : x(exp2(-turn.dx)), y(exp2(-turn.dy)), both(turn.empty ? 0 : x * y) {}
};

// The largest references of the slices; references(s) are those of slice s.
template <class References>
FLJSD_HOST_DEVICE ModelReferences largest_references(std::int64_t slices, float scale,
                                                     const References& references) {
  ModelReferences row = references(0);
  for (std::int64_t s = 1; s < slices; ++s) {
    const ModelReferences r = references(s);
    if (r.x.total(scale) > row.x.total(scale)) row.x = r.x;
    if (r.y.total(scale) > row.y.total(scale)) row.y = r.y;
  }
  return row;
}

// Φ_k, S_x and S_y of a row.
struct FrequencySum {
  double x, y, re, im;

  // Adds a slice.
  FLJSD_HOST_DEVICE void add(int k, const ModelReferences& row, const ModelReferences& slice, float scale,
                             float phase_step, double slice_x, double slice_y, double slice_re,
                             double slice_im) {
    const Turn turn(slice, row, scale, phase_step);
    const Shrink shrink(turn);
    turn.turn(k, slice_re, slice_im);
    add(shrink, slice_x, slice_y, slice_re, slice_im);
  }
  // Adds a slice whose Φ_k is turned already.
  FLJSD_HOST_DEVICE void add(const Shrink& shrink, double slice_x, double slice_y, double turned_re,
                             double turned_im) {
    x += slice_x * shrink.x * shrink.x;
    y += slice_y * shrink.y * shrink.y;
    // An empty slice, or one that no longer matters: its phase may be meaningless.
    if (shrink.both == 0) return;
    re += shrink.both * turned_re;
    im += shrink.both * turned_im;
  }
  FLJSD_HOST_DEVICE bool has_distribution() const { return x > 0 && x < 1e300 && y > 0 && y < 1e300; }
  // To A_k = e^{ikh·s}·Φ_k/sqrt(S_x·S_y), s = logit(beta) + log(S_x/S_y). phase_step is per half log2 unit,
  // of which a nat has log2(e)/2.
  FLJSD_HOST_DEVICE void normalise(int k, const OnePassWeights& weights) {
    const double step = weights.phase_step * 0.721347520444481704;
    double sine, cosine;
    sine_and_cosine(k * step * (log(weights.beta) - log1p(-weights.beta) + log(x / y)), sine, cosine);
    const double root = 1 / sqrt(x * y), before = re;
    re = root * (before * cosine - im * sine);
    im = root * (before * sine + im * cosine);
  }
};

struct MixtureFinish {
  double divergence, constant;  // constant: kappa or −KL(q‖M)
  bool uses_kappa;
};

// The nearest number in [0, most]; NaN stays, which fmin and fmax would turn into an end.
FLJSD_HOST_DEVICE double clamp_or_nan(double value, double most) {
  return value < 0 ? 0 : value > most ? most : value;
}

// From the weighted sums over k. What lies outside [0, h(beta)] or [0, −log(1−beta)] is quadrature or
// rounding error: the nearest end is closer to the truth.
FLJSD_HOST_DEVICE MixtureFinish finish_mixture(double divergence_sum, double kappa_sum, double beta) {
  const double most = -beta * log(beta) - (1 - beta) * log1p(-beta), most_kappa = -log1p(-beta);
  const double divergence = clamp_or_nan(most - sqrt(beta * (1 - beta)) * divergence_sum, most);
  const double kappa = clamp_or_nan(sqrt(beta / (1 - beta)) * kappa_sum, most_kappa);
  const double student_kl = most_kappa - kappa;
  const bool uses_kappa = kappa < student_kl;
  return {divergence, uses_kappa ? kappa : -student_kl, uses_kappa};
}

FLJSD_HOST_DEVICE RowConstants mixture_constants(const MixtureFinish& finished, const ModelReferences& refs,
                                                 double sum_x, double sum_y, const Mixture& m) {
  const float scale = 0.5f * m.log2_scale;
  const float x_ref = refs.x.logit(scale), y_ref = refs.y.logit(scale);
  // What the rounding of the reference to a logit took away, in bits.
  const double x_lost = 2 * (refs.x.total(scale) - static_cast<double>(x_ref) * static_cast<double>(scale));
  const double y_lost = 2 * (refs.y.total(scale) - static_cast<double>(y_ref) * static_cast<double>(scale));
  return row_constants(x_ref, y_ref, log2(sum_x) + x_lost, log2(sum_y) + y_lost, finished.constant,
                       finished.uses_kappa, m);
}

// beta = 0 and 1: the sum of the slices; record(s) is that of slice s.
template <class Record>
FLJSD_HOST_DEVICE KlRecord finish_kl(std::int64_t slices, float log2_scale, const Record& record) {
  KlRecord row{record(0).ref, {0, 0, 0}};
  for (std::int64_t s = 1; s < slices; ++s) {
    const KlReference r = record(s).ref;
    if (r.top > row.ref.top || (r.top == row.ref.top && r.pivot > row.ref.pivot))
      row.ref.top = r.top, row.ref.pivot = r.pivot;
    row.ref.other = fmaxf(row.ref.other, r.other);
  }
  for (std::int64_t s = 0; s < slices; ++s) {
    KlRecord slice = record(s);
    slice.sums.raise(slice.ref, row.ref, log2_scale);
    row.sums.first += slice.sums.first;
    row.sums.second += slice.sums.second;
    row.sums.mean += slice.sums.mean;
  }
  return row;
}

template <Divergence kind>
FLJSD_HOST_DEVICE RowConstants kl_constants(const KlRecord& row, const Mixture& m) {
  const double log2_first = log2(row.sums.first);
  if constexpr (kind == Divergence::teacher_kl)
    return row_constants(row.ref.other, row.ref.top, log2(row.sums.second), log2_first, 0, false, m);
  return row_constants(row.ref.top, row.ref.pivot, log2_first,
                       row.sums.log2_second_at_pivot(row.ref, m.log2_scale), bit * row.sums.constant(), false,
                       m);
}

}  // namespace fljsd::cuda
