// SPDX-License-Identifier: Apache-2.0
#include "reference/chernoff/row_sweep.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <vector>

#include "reference/chernoff/float_functions.h"
#include "reference/chernoff/product_basis.h"

namespace fljsd {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::size_t largest_tile = 4096;
constexpr std::size_t most_lanes = 16;
// An entry this far below its reference has weight 2^{−184}: it adds exactly 0, and its phase need not be
// known.
constexpr float farthest = -256;

using Column = std::array<float, largest_tile + most_lanes>;

// The largest entry, and whether all entries are below +inf (and none is NaN).
struct Maximum {
  float value;
  bool valid;
};
Maximum maximum(std::span<const float> row) {
  float value = -infinity;
  int below = 1;
  for (const float entry : row) {
    value = entry > value ? entry : value;
    below &= entry < infinity;
  }
  return {value, below != 0};
}

// Σ term(i) over a tile, padded to whole lanes: lane l takes i = l, l + Lanes, ..., then the lanes are added
// as a tree.
template <std::size_t Lanes, class Step>
float sum_in_lanes(std::size_t padded, const Step& step) {
  std::array<float, Lanes> lane{};
  for (std::size_t i = 0; i < padded; i += Lanes) {
    for (std::size_t l = 0; l < Lanes; ++l) lane[l] = step(lane[l], i + l);
  }
  for (std::size_t half = Lanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

// Sums of one tile's columns with the configured number of lanes.
class LaneSums {
 public:
  LaneSums(int lanes, std::size_t padded) : lanes_(lanes), padded_(padded) {}

  float sum(const Column& a) const {
    return with([&](float partial, std::size_t i) { return partial + a[i]; });
  }
  float dot(const Column& a, const Column& b) const {
    return with([&](float partial, std::size_t i) { return std::fma(a[i], b[i], partial); });
  }

 private:
  template <class Step>
  float with(const Step& step) const {
    switch (lanes_) {
      case 1: return sum_in_lanes<1>(padded_, step);
      case 4: return sum_in_lanes<4>(padded_, step);
      default: return sum_in_lanes<most_lanes>(padded_, step);
    }
  }

  int lanes_;
  std::size_t padded_;
};

// Sweeps one row. Moments are Re Φ_0 .. Re Φ_K, Im Φ_0 .. Im Φ_K, or those of the product basis.
class RowSweep {
 public:
  explicit RowSweep(const SweepConfig& config)
      : config_(config),
        frequencies_(static_cast<std::size_t>(config.last_frequency) + 1),
        moments_(config.phases == PhaseMethod::product_basis ? product_moments : 2 * frequencies_),
        columns_(std::make_unique<Columns>()) {}

  // False when the row has no distribution.
  bool add_tile(std::span<const float> x, std::span<const float> y) {
    const Maximum top_x = maximum(x), top_y = maximum(y);
    if (!top_x.valid || !top_y.valid) return false;
    set_reference(top_x.value, top_y.value);
    form_terms(x, y);
    const LaneSums lanes(config_.lanes, padded_);
    const Columns& t = *columns_;
    sum_x_.add(lanes.sum(t.square_x), config_.merge);
    sum_y_.add(lanes.sum(t.square_y), config_.merge);
    if (!has_phase_) return true;
    switch (config_.phases) {
      case PhaseMethod::sincos: add_direct(lanes); break;
      case PhaseMethod::recurrence: add_recurrence(lanes, 1); break;
      case PhaseMethod::stride4: add_recurrence(lanes, 4); break;
      case PhaseMethod::product_basis: add_products(lanes); break;
    }
    return true;
  }

  ChernoffSums<double> sums() const {
    ChernoffSums<double> result;
    result.max_x = max_x_;
    result.max_y = max_y_;
    result.sum_x = sum_x_.value();
    result.sum_y = sum_y_.value();
    result.phase_x = has_phase_ ? phase_x_ : max_x_;
    result.phase_y = has_phase_ ? phase_y_ : max_y_;
    result.real.resize(frequencies_);
    result.imag.resize(frequencies_);
    for (std::size_t k = 0; k < frequencies_; ++k) {
      if (config_.phases != PhaseMethod::product_basis) {
        result.real[k] = moments_[k].value();
        result.imag[k] = moments_[frequencies_ + k].value();
        continue;
      }
      const ProductCoefficients coefficients = product_coefficients(static_cast<int>(k));
      for (std::size_t i = 0; i < product_moments; ++i) {
        result.real[k] += coefficients.real[i] * moments_[i].value();
        result.imag[k] += coefficients.imag[i] * moments_[i].value();
      }
    }
    return result;
  }

 private:
  // One value per entry of the tile.
  struct Columns {
    Column square_x, square_y, modulus, turns;
    Column cosine, sine, cosine5, sine5;
    std::array<Column, 5> inner, outer;
    std::array<Column, 9> real, imag;  // z of a recurrence, in a ring
  };

  // The reference of a row: its running maximum, or up to `headroom` below it.
  float reference(float old, float top) const {
    if (old == -infinity) return top;
    return static_cast<double>(top) > static_cast<double>(old) + config_.headroom ? top : old;
  }

  void set_reference(float top_x, float top_y) {
    const float max_x = reference(max_x_, top_x), max_y = reference(max_y_, top_y);
    const double fall_x = max_x_ > -infinity ? static_cast<double>(max_x_) - max_x : 0;
    const double fall_y = max_y_ > -infinity ? static_cast<double>(max_y_) - max_y : 0;
    max_x_ = max_x;
    max_y_ = max_y;
    if (fall_x < 0) sum_x_.scale(std::exp(fall_x), config_.merge);
    if (fall_y < 0) sum_y_.scale(std::exp(fall_y), config_.merge);
    if (fall_x < 0 || fall_y < 0) {
      const double factor = std::exp((fall_x + fall_y) / 2);
      for (Accumulator<float>& moment : moments_) moment.scale(factor, config_.merge);
    }
    if (max_x_ == -infinity || max_y_ == -infinity) return;  // one model has no finite logit yet: Φ is 0
    if (!has_phase_) {
      has_phase_ = true;
      phase_x_ = max_x_;
      phase_y_ = max_y_;
    }
    const double gap = (static_cast<double>(max_y_) - max_x_) - (static_cast<double>(phase_y_) - phase_x_);
    offset_ = static_cast<float>(drop_whole_turns(gap / config_.period));
  }

  void form_terms(std::span<const float> x, std::span<const float> y) {
    Columns& t = *columns_;
    const std::size_t size = x.size(), lanes = static_cast<std::size_t>(config_.lanes);
    padded_ = (size + lanes - 1) / lanes * lanes;
    constexpr float half_log2e = static_cast<float>(std::numbers::log2e / 2);
    const float per_turn = static_cast<float>(1 / config_.period), offset = offset_;
    // Before a first finite logit there is nothing to subtract.
    const float max_x = max_x_ > -infinity ? max_x_ : 0, max_y = max_y_ > -infinity ? max_y_ : 0;
    for (std::size_t i = 0; i < size; ++i) {
      const float below_x = x[i] - max_x, below_y = y[i] - max_y;
      const float from_x = below_x > farthest ? below_x : farthest;  // −inf becomes finite, its weight 0
      const float from_y = below_y > farthest ? below_y : farthest;
      const float root_x = exp2_float(from_x * half_log2e), root_y = exp2_float(from_y * half_log2e);
      t.square_x[i] = root_x * root_x;
      t.square_y[i] = root_y * root_y;
      t.modulus[i] = root_x * root_y;
      const float turns = std::fma(from_y - from_x, per_turn, offset);
      t.turns[i] = turns - nearest_whole(turns);
    }
    for (std::size_t i = size; i < padded_; ++i)
      t.square_x[i] = t.square_y[i] = t.modulus[i] = t.turns[i] = 0;
  }

  // sin and cos of 2πk·turns.
  void evaluate(int k, Column& cosine, Column& sine) {
    const Column& turns = columns_->turns;
    const float factor = static_cast<float>(k);
    for (std::size_t i = 0; i < padded_; ++i) {
      const float product = factor * turns[i];
      const SineCosine value = sine_cosine_of_turns(product - nearest_whole(product));
      cosine[i] = value.cosine;
      sine[i] = value.sine;
    }
  }

  void add_direct(const LaneSums& lanes) {
    Columns& t = *columns_;
    moments_[0].add(lanes.sum(t.modulus), config_.merge);
    for (std::size_t k = 1; k < frequencies_; ++k) {
      evaluate(static_cast<int>(k), t.cosine, t.sine);
      moments_[k].add(lanes.dot(t.modulus, t.cosine), config_.merge);
      moments_[frequencies_ + k].add(lanes.dot(t.modulus, t.sine), config_.merge);
    }
  }

  // z_{k+stride} = 2cos(stride·θ)·z_k − z_{k−stride} from z_k = g·e^{ikθ}, k <= stride; z_{−k} is the
  // conjugate of z_k.
  void add_recurrence(const LaneSums& lanes, std::size_t stride) {
    Columns& t = *columns_;
    constexpr std::size_t ring = std::tuple_size_v<decltype(Columns::real)>;
    Column& twice = t.cosine5;  // 2cos(stride·θ)
    for (std::size_t k = 0; k < frequencies_; ++k) {
      Column &real = t.real[k % ring], &imag = t.imag[k % ring];
      if (k == 0) {
        std::copy_n(t.modulus.begin(), padded_, real.begin());
        std::fill_n(imag.begin(), padded_, 0.0f);
      } else if (k <= stride) {
        evaluate(static_cast<int>(k), t.cosine, t.sine);
        for (std::size_t i = 0; i < padded_; ++i) {
          real[i] = t.modulus[i] * t.cosine[i];
          imag[i] = t.modulus[i] * t.sine[i];
        }
        if (k == stride) {
          for (std::size_t i = 0; i < padded_; ++i) twice[i] = 2 * t.cosine[i];
        }
      } else {
        const bool mirrored = k < 2 * stride;
        const std::size_t last = (k - stride) % ring,
                          before = (mirrored ? 2 * stride - k : k - 2 * stride) % ring;
        const float side = mirrored ? 1.0f : -1.0f;
        for (std::size_t i = 0; i < padded_; ++i) {
          real[i] = std::fma(twice[i], t.real[last][i], -t.real[before][i]);
          imag[i] = std::fma(twice[i], t.imag[last][i], side * t.imag[before][i]);
        }
      }
      moments_[k].add(lanes.sum(real), config_.merge);
      moments_[frequencies_ + k].add(lanes.sum(imag), config_.merge);
    }
  }

  void add_products(const LaneSums& lanes) {
    Columns& t = *columns_;
    evaluate(1, t.cosine, t.sine);
    evaluate(5, t.cosine5, t.sine5);
    for (std::size_t i = 0; i < padded_; ++i) {
      const float c = t.cosine[i], s = t.sine[i], c5 = t.cosine5[i], s5 = t.sine5[i], g = t.modulus[i];
      t.inner[0][i] = g;
      t.inner[1][i] = g * c;
      t.inner[2][i] = g * s;
      t.inner[3][i] = t.inner[1][i] * c;
      t.inner[4][i] = t.inner[1][i] * s;
      t.outer[1][i] = c5;
      t.outer[2][i] = s5;
      t.outer[3][i] = c5 * c5;
      t.outer[4][i] = c5 * s5;
    }
    for (std::size_t a = 0; a < 5; ++a) {
      for (std::size_t b = 0; b < 5; ++b) {
        const float sum = a == 0 ? lanes.sum(t.inner[b]) : lanes.dot(t.outer[a], t.inner[b]);
        moments_[5 * a + b].add(sum, config_.merge);
      }
    }
  }

  SweepConfig config_;
  std::size_t frequencies_;
  float max_x_ = -infinity, max_y_ = -infinity;
  float phase_x_ = 0, phase_y_ = 0, offset_ = 0;
  bool has_phase_ = false;
  Accumulator<float> sum_x_, sum_y_;
  std::vector<Accumulator<float>> moments_;
  std::size_t padded_ = 0;
  std::unique_ptr<Columns> columns_;
};

}  // namespace

const char* name(MergeSum merge) {
  switch (merge) {
    case MergeSum::plain: return "plain";
    case MergeSum::compensated: return "compensated";
  }
  return "?";
}

const char* name(PhaseMethod method) {
  switch (method) {
    case PhaseMethod::sincos: return "sincos";
    case PhaseMethod::recurrence: return "recurrence";
    case PhaseMethod::stride4: return "stride-4";
    case PhaseMethod::product_basis: return "product-basis";
  }
  return "?";
}

ChernoffSums<double> sweep_row(std::span<const float> x, std::span<const float> y,
                               const SweepConfig& config) {
  RowSweep sweep(config);
  const std::size_t tile = static_cast<std::size_t>(config.tile);
  for (std::size_t first = 0; first < x.size(); first += tile) {
    const std::size_t size = std::min(tile, x.size() - first);
    if (!sweep.add_tile(x.subspan(first, size), y.subspan(first, size))) {
      ChernoffSums<double> none;
      none.valid = false;
      return none;
    }
  }
  return sweep.sums();
}

KlSums<double> sweep_row_kl(std::span<const float> a, std::span<const float> b, const SweepConfig& config) {
  KlState<float> row(config.merge);
  const auto columns = std::make_unique<std::array<Column, 3>>();
  auto& [weight_a, weight_b, difference] = *columns;
  constexpr float log2e = static_cast<float>(std::numbers::log2e);
  const std::size_t tile = static_cast<std::size_t>(config.tile),
                    step = static_cast<std::size_t>(config.lanes);
  for (std::size_t first = 0; first < a.size(); first += tile) {
    const auto tile_a = a.subspan(first, std::min(tile, a.size() - first));
    const auto tile_b = b.subspan(first, tile_a.size());
    const Maximum top_a = maximum(tile_a), top_b = maximum(tile_b);
    if (!top_a.valid || !top_b.valid) {
      row.invalidate();
      break;
    }
    row.raise(std::max(top_a.value, row.max_a()), std::max(top_b.value, row.max_b()));
    const float max_a = row.max_a() > -infinity ? row.max_a() : 0,
                max_b = row.max_b() > -infinity ? row.max_b() : 0;
    int excluded = 0;  // by b, though not by a
    for (std::size_t i = 0; i < tile_a.size(); ++i) {
      const float from_a = tile_a[i] - max_a, from_b = tile_b[i] - max_b;
      weight_a[i] = exp2_float(std::max(from_a, -1000.0f) * log2e);
      weight_b[i] = exp2_float(std::max(from_b, -1000.0f) * log2e);
      const bool counts = weight_a[i] > 0 && from_b > -infinity;
      difference[i] = counts ? weight_a[i] * (from_a - from_b) : 0;
      excluded |= from_a > -infinity && !(from_b > -infinity);
    }
    std::size_t padded = tile_a.size();
    for (; padded % step != 0; ++padded) weight_a[padded] = weight_b[padded] = difference[padded] = 0;
    const LaneSums lanes(config.lanes, padded);
    row.add_sums(lanes.sum(weight_a), lanes.sum(weight_b), lanes.sum(difference), excluded != 0);
  }
  return row.sums();
}

}  // namespace fljsd
