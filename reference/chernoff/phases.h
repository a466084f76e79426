// SPDX-License-Identifier: Apache-2.0
// Phases e^{ikθ}, k = 0..K, of one vocabulary entry. Angles are in turns: θ = 2π·turns, and a whole number of
// turns may be dropped exactly, before anything is multiplied by π.
#pragma once

#include <cmath>
#include <numbers>
#include <vector>

namespace fljsd {

// How e^{ikθ} is formed from θ. All give the same sums but for rounding (docs/one_pass.md, section 8).
enum class PhaseMethod {
  sincos,      // sine and cosine of every kθ
  recurrence,  // z_{k+1} = 2cos θ·z_k − z_{k−1}
  stride4,     // z_{k+4} = 2cos 4θ·z_k − z_{k−4}: four short chains
  product_basis,  // e^{i(5j+l)θ} = e^{i5jθ}·e^{ilθ}, −2 <= l <= 2; from the moments of products, needs K <=
                  // 12
};
const char* name(PhaseMethod method);

template <class Real>
const Real& pi_of() {
  static const Real pi = [] {
    using std::acos;
    return Real(acos(Real(-1)));
  }();
  return pi;
}
template <>
inline const double& pi_of<double>() {
  return std::numbers::pi;
}
template <>
inline const float& pi_of<float>() {
  return std::numbers::pi_v<float>;
}

// turns − the nearest whole number: in [−1/2, 1/2], exactly.
template <class Real>
Real drop_whole_turns(const Real& turns) {
  using std::floor;
  return turns - floor(turns + Real(1) / 2);
}

template <class Real>
struct Phases {
  std::vector<Real> cosine, sine;  // [K+1]
};

// Overwrites `phases` (K+1 entries each) for an angle in turns.
template <class Real>
void form_phases(PhaseMethod method, const Real& turns, Phases<Real>& phases) {
  using std::cos, std::sin;
  auto& c = phases.cosine;
  auto& s = phases.sine;
  const std::size_t count = c.size();
  const auto direct = [&](std::size_t k) {
    const Real angle = 2 * pi_of<Real>() * drop_whole_turns(Real(static_cast<Real>(k) * turns));
    c[k] = cos(angle);
    s[k] = sin(angle);
  };
  c[0] = 1;
  s[0] = 0;
  // The frequencies that are evaluated; the others follow from them.
  const std::size_t first = method == PhaseMethod::sincos    ? count - 1
                            : method == PhaseMethod::stride4 ? 4
                                                             : 1;
  for (std::size_t k = 1; k <= first && k < count; ++k) direct(k);
  switch (method) {
    case PhaseMethod::sincos: break;
    case PhaseMethod::recurrence:
      for (std::size_t k = 2; k < count; ++k) {
        c[k] = 2 * c[1] * c[k - 1] - c[k - 2];
        s[k] = 2 * c[1] * s[k - 1] - s[k - 2];
      }
      break;
    case PhaseMethod::stride4:
      for (std::size_t k = 5; k < count; ++k) {
        // z_{k−8} is the conjugate of z_{8−k}
        const Real c8 = k < 8 ? c[8 - k] : c[k - 8], s8 = k < 8 ? Real(-s[8 - k]) : s[k - 8];
        c[k] = 2 * c[4] * c[k - 4] - c8;
        s[k] = 2 * c[4] * s[k - 4] - s8;
      }
      break;
    case PhaseMethod::product_basis: {
      if (count > 2) {
        c[2] = 2 * c[1] * c[1] - 1;
        s[2] = 2 * c[1] * s[1];
      }
      Real c5 = 1, s5 = 0;
      if (count > 3) {
        const Real angle = 2 * pi_of<Real>() * drop_whole_turns(Real(5 * turns));
        c5 = cos(angle);
        s5 = sin(angle);
      }
      const Real c10 = 2 * c5 * c5 - 1, s10 = 2 * c5 * s5;
      for (std::size_t k = 3; k < count; ++k) {
        const std::size_t j = (k + 2) / 5;
        const Real &cj = j == 1 ? c5 : c10, &sj = j == 1 ? s5 : s10;
        const std::size_t l = k > 5 * j ? k - 5 * j : 5 * j - k;
        const Real cl = c[l], sl = k > 5 * j ? s[l] : Real(-s[l]);
        c[k] = cj * cl - sj * sl;
        s[k] = sj * cl + cj * sl;
      }
      break;
    }
  }
}

}  // namespace fljsd
