// SPDX-License-Identifier: Apache-2.0
#include "reference/rounding/row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "reference/rounding/float_spec.h"
#include "reference/rounding/tree_sum.h"

namespace fljsd {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

bool has_distribution(std::span<const double> row) {
  bool any = false;
  for (double value : row) {
    if (!(value < infinity)) return false;  // NaN or +inf
    any |= value > -infinity;
  }
  return any;
}

// The pieces of x − max − log Σ e^{x − max} in fp32.
struct FloatLogSum {
  explicit FloatLogSum(std::span<const double> row) {
    for (double value : row) max = std::max(max, static_cast<float>(value));  // NaN is passed over ...
    TreeSum<float> terms;
    for (double value : row) terms.add(std::exp(static_cast<float>(value) - max));  // ... and found here
    sum = terms.value();
    log_sum = std::log(sum);
  }
  float max = -std::numeric_limits<float>::infinity();
  float sum;
  float log_sum;
};

// The numbers that every formula needs, in its arithmetic.
template <class Real>
struct Constants {
  Constants(double exact_beta, double divisor, bool ignored)
      : forward_kl(exact_beta == 0),
        reverse_kl(exact_beta == 1),
        beta(static_cast<Real>(exact_beta)),
        rest(static_cast<Real>(1 - exact_beta)),
        scale(ignored ? Real{0} : 1 / static_cast<Real>(divisor)) {
    // A beta that only rounds to an endpoint is not one.
    if (!forward_kl && !reverse_kl) {
      const Real half_ulp = std::numeric_limits<Real>::epsilon() / 2;
      beta = std::clamp(beta, std::numeric_limits<Real>::denorm_min(), 1 - half_ulp);
    }
  }
  bool forward_kl;  // beta = 0
  bool reverse_kl;  // beta = 1
  Real beta;
  Real rest;   // 1 − beta, subtracted in double
  Real scale;  // the reduction's factor, a rounded reciprocal; 0 for an ignored row
};

// One entry after the log-softmax, in the arithmetic of the formula.
template <class Real>
struct Entry {
  Entry(const RowModel::Workspace& w, std::size_t v)
      : log_q(static_cast<Real>(w.log_q[v])),
        log_p(static_cast<Real>(w.log_p[v])),
        d(static_cast<Real>(w.d[v])),
        q(static_cast<Real>(w.q[v])) {}
  LogRatio<Real> ratio() const { return {d > 0 ? log_p : log_q, d}; }
  Real log_q, log_p, d, q;
};

// max(s, 0) + log1p(e^{−|s|}): neither over- nor underflows where ln(1 + e^s) does not.
template <class Real>
Real softplus(Real s) {
  return std::max(s, Real{0}) + std::log1p(std::exp(-std::abs(s)));
}

// 0 for an entry of probability 0 in a guarded pipeline, whatever else it is multiplied by.
template <class Real>
Real product(bool guarded, Real probability, Real factor) {
  return guarded && probability == 0 ? Real{0} : probability * factor;
}

// Each formula returns D and, unless `gradient` is empty, leaves there the gradient of the scaled logits
// times the reduction factor.

template <class Real>
Real difference(const RowModel::Workspace& w, const Constants<Real>& c, std::span<double> gradient) {
  const std::size_t vocab = w.d.size();
  TreeSum<Real> divergence_sum, kl_sum;
  for (std::size_t v = 0; v < vocab; ++v) {
    const LogRatio<Real> ratio = Entry<Real>(w, v).ratio();
    divergence_sum.add(divergence_term(ratio, c.beta));
    if (!gradient.empty() && !c.forward_kl) kl_sum.add(student_kl_term(ratio, c.beta));
  }
  const Real kl = kl_sum.value();
  for (std::size_t v = 0; v < gradient.size(); ++v)
    gradient[v] = gradient_term(Entry<Real>(w, v).ratio(), c.beta, kl) * c.scale;
  return divergence_sum.value();
}

template <class Real>
Real log_mixture(const RowModel::Workspace& w, const Constants<Real>& c, bool guarded, bool ignored,
                 std::span<double> gradient) {
  TreeSum<Real> divergence_sum, gradient_sum;
  for (std::size_t v = 0; v < w.d.size(); ++v) {
    const Entry<Real> e(w, v);
    const Real q = std::exp(e.log_q), p = std::exp(e.log_p);
    Real term, g;
    if (c.forward_kl) {
      term = product(guarded, p, e.log_p - e.log_q);
      g = -p;
    } else if (c.reverse_kl) {
      term = product(guarded, q, e.log_q - e.log_p);
      g = term + q;
    } else {
      const Real beta_p = c.beta * p, rest_q = c.rest * q, m = beta_p + rest_q;
      const Real log_m = std::log(m);
      term =
          product(guarded, beta_p, e.log_p) + product(guarded, rest_q, e.log_q) - product(guarded, m, log_m);
      g = product(guarded, rest_q, e.log_q - log_m);
    }
    divergence_sum.add(term);
    if (gradient.empty()) continue;
    g = ignored ? Real{0} : g * c.scale;  // an ignored row's gradient of log q is set to 0
    gradient[v] = g;
    gradient_sum.add(g);
  }
  const Real sum = gradient_sum.value();
  for (std::size_t v = 0; v < gradient.size(); ++v)
    gradient[v] = static_cast<Real>(gradient[v]) - static_cast<Real>(w.q[v]) * sum;
  return divergence_sum.value();
}

template <class Real>
Real log_mixture_autograd(const RowModel::Workspace& w, const Constants<Real>& c, bool guarded,
                          DType log_softmax_grad, std::span<double> gradient) {
  const Real student_scale = c.rest * c.scale, teacher_scale = c.beta * c.scale;
  TreeSum<Real> teacher_kl, student_kl;
  for (std::size_t v = 0; v < w.d.size(); ++v) {
    const Entry<Real> e(w, v);
    const Real q = std::exp(e.log_q), p = std::exp(e.log_p);
    Real g;
    if (c.forward_kl) {
      teacher_kl.add(product(guarded, p, e.log_p - e.log_q));
      g = -(p * c.scale);
    } else if (c.reverse_kl) {
      const Real log_ratio = e.log_q - e.log_p;
      student_kl.add(product(guarded, q, log_ratio));
      g = q * c.scale + product(guarded, q, log_ratio * c.scale);
    } else {
      // Linear interpolation as PyTorch does it: from the nearer end.
      const Real m = c.beta < Real(0.5) ? q + c.beta * (p - q) : p - (p - q) * (1 - c.beta);
      const Real log_m = std::log(m);
      teacher_kl.add(product(guarded, p, e.log_p - log_m));
      student_kl.add(product(guarded, q, e.log_q - log_m));
      // Three paths lead back to log q: through the difference, through e^{log q} in front of it, and through
      // M. The first and the last cancel up to rounding.
      const Real by_difference = student_scale * q;
      const Real by_factor = product(guarded, q, student_scale * (e.log_q - log_m));
      const Real mixture_grad = -(student_scale * q) / m + -(teacher_scale * p) / m;
      g = (by_difference + by_factor) + product(guarded, q, mixture_grad * c.rest);
    }
    if (!gradient.empty()) gradient[v] = g;
  }
  if (!gradient.empty()) {
    round_all(log_softmax_grad, gradient);
    TreeSum<Real> gradient_sum;
    for (double g : gradient) gradient_sum.add(static_cast<Real>(g));
    const Real sum = gradient_sum.value();
    for (std::size_t v = 0; v < gradient.size(); ++v)
      gradient[v] = static_cast<Real>(gradient[v]) - std::exp(static_cast<Real>(w.log_q[v])) * sum;
  }
  if (c.forward_kl) return teacher_kl.value();
  if (c.reverse_kl) return student_kl.value();
  return c.beta * teacher_kl.value() + c.rest * student_kl.value();
}

template <class Real>
Real softplus_form(const RowModel::Workspace& w, const Constants<Real>& c, double beta,
                   std::span<double> gradient) {
  const Real log_odds = static_cast<Real>(std::log(beta / (1 - beta)));
  TreeSum<Real> student_sum, teacher_sum;
  for (std::size_t v = 0; v < w.d.size(); ++v) {
    const Entry<Real> e(w, v);
    const Real p = std::exp(e.log_p);
    if (c.forward_kl || c.reverse_kl) {
      teacher_sum.add(product(true, p, e.d));
      student_sum.add(product(true, e.q, -e.d));
    } else {
      const Real s = e.d + log_odds;
      student_sum.add(product(true, e.q, softplus(s)));
      teacher_sum.add(product(true, p, softplus(-s)));
    }
  }
  const Real kappa = student_sum.value();  // KL(q‖p) at beta = 1
  for (std::size_t v = 0; v < gradient.size(); ++v) {
    const Entry<Real> e(w, v);
    const Real dz = c.forward_kl   ? e.q - std::exp(e.log_p)
                    : c.reverse_kl ? product(true, e.q, -e.d - kappa)
                                   : product(true, c.rest * e.q, kappa - softplus(e.d + log_odds));
    gradient[v] = dz * c.scale;
  }
  if (c.forward_kl) return teacher_sum.value();
  if (c.reverse_kl) return kappa;
  const double entropy = -beta * std::log(beta) - (1 - beta) * std::log1p(-beta);
  return static_cast<Real>(entropy) - c.beta * teacher_sum.value() - c.rest * kappa;
}

// Rows whose constant the second sweep finds to be off are swept once more, with the constant that it found.
double one_pass(RowModel::Workspace& w, const OnePassPlan& plan, const Constants<float>& c,
                std::span<double> gradient) {
  w.x32.assign(w.x.begin(), w.x.end());
  w.y32.assign(w.y.begin(), w.y.end());
  const OnePassRow row = one_pass_row(w.x32, w.y32, plan);
  if (!gradient.empty()) {
    w.dlogits32.resize(gradient.size());
    const OnePassCertificate certificate = one_pass_gradient(w.x32, w.y32, row, plan, w.dlogits32);
    if (certificate.missed)
      one_pass_gradient(w.x32, w.y32, with_swept_constant(row, certificate, plan), plan, w.dlogits32);
    for (std::size_t v = 0; v < gradient.size(); ++v) gradient[v] = w.dlogits32[v] * c.scale;
  }
  return row.divergence;
}

// Fitting a plan takes longer than a small problem, and problems of one run share their beta.
OnePassPlan plan_for(double beta) {
  static std::mutex mutex;
  static std::map<double, OnePassPlan> plans;
  const std::lock_guard lock(mutex);
  if (plans.size() > 1000) plans.clear();
  const auto found = plans.find(beta);
  return found != plans.end() ? found->second
                              : plans.emplace(beta, OnePassPlan({.beta = beta})).first->second;
}

}  // namespace

void round_all(DType dtype, std::span<double> values) {
  if (dtype == DType::f64) return;
  constexpr Index block = 256;
  std::array<float, block> encoded;  // 4 bytes each: enough for any of the other formats
  for (Index i = 0; i < static_cast<Index>(values.size()); i += block) {
    const Index count = std::min(block, static_cast<Index>(values.size()) - i);
    store_run(dtype, encoded.data(), 0, count, values.data() + i);
    load_run(dtype, encoded.data(), 0, count, values.data() + i);
  }
}

RowModel::RowModel(const Pipeline& pipeline, const Problem& problem, const Options& options, Index counted)
    : pipeline_(pipeline),
      student_(common_dtype(problem.student_input.dtype, problem.student_weight.dtype)),
      teacher_(common_dtype(problem.teacher_input.dtype, problem.teacher_weight.dtype)),
      beta_(options.beta),
      temperature_(options.temperature),
      divisor_(static_cast<double>(reduction_divisor(options, counted))) {
  if (pipeline.formula == Formula::one_pass) plan_ = plan_for(options.beta);
}

template <class Real>
void RowModel::scaled_logits(std::span<const Real> products, std::span<const double> bias, DType input,
                             std::vector<double>& x) const {
  x.assign(products.begin(), products.end());
  for (std::size_t v = 0; v < bias.size(); ++v) x[v] = products[v] + static_cast<Real>(bias[v]);
  round_all(dtype_of(pipeline_.logits, input), x);
  if (temperature_ == 1) return;
  if (pipeline_.scaled_logits == Storage::float64) {
    for (double& value : x) value /= temperature_;
  } else {
    const float inverse = 1 / static_cast<float>(temperature_);
    for (double& value : x) value = static_cast<float>(value) * inverse;
  }
  round_all(dtype_of(pipeline_.scaled_logits, input), x);
}

template void RowModel::scaled_logits(std::span<const float>, std::span<const double>, DType,
                                      std::vector<double>&) const;
template void RowModel::scaled_logits(std::span<const double>, std::span<const double>, DType,
                                      std::vector<double>&) const;

void RowModel::log_softmax(Workspace& w) const {
  const std::size_t vocab = w.x.size();
  for (std::vector<double>* part : {&w.log_q, &w.log_p, &w.d, &w.q}) part->resize(vocab);
  if (pipeline_.log_softmax == Storage::float64) {
    std::vector<double>&larger = w.log_q, &d = w.d;
    larger = w.x;
    d = w.y;
    if (!normalise(std::span(larger), std::span(d))) {
      for (std::vector<double>* part : {&w.log_q, &w.log_p, &w.d, &w.q})
        std::fill(part->begin(), part->end(), nan);
      return;
    }
    for (std::size_t v = 0; v < vocab; ++v) {
      const LogRatio<double> ratio{larger[v], d[v]};
      w.q[v] = ratio.q();
      w.log_p[v] = ratio.d > 0 ? ratio.log_larger : ratio.log_larger + ratio.d;
      w.log_q[v] = ratio.d > 0 ? ratio.log_larger - ratio.d : ratio.log_larger;
    }
    return;
  }

  const FloatLogSum a(w.x), b(w.y);
  for (std::size_t v = 0; v < vocab; ++v) {
    const float x = static_cast<float>(w.x[v]) - a.max, y = static_cast<float>(w.y[v]) - b.max;
    w.log_q[v] = x - a.log_sum;
    w.log_p[v] = y - b.log_sum;
    w.d[v] = (y - x) - (b.log_sum - a.log_sum);
    w.q[v] = std::exp(x) / a.sum;
  }
  const DType student = dtype_of(pipeline_.log_softmax, student_),
              teacher = dtype_of(pipeline_.log_softmax, teacher_);
  if (size_of(student) < 4 || size_of(teacher) < 4) {
    round_all(student, w.log_q);
    round_all(teacher, w.log_p);
    for (std::size_t v = 0; v < vocab; ++v) {
      w.d[v] = static_cast<float>(w.log_p[v]) - static_cast<float>(w.log_q[v]);
      w.q[v] = std::exp(static_cast<float>(w.log_q[v]));
    }
  }
  // −inf − (−inf): an entry that neither model has differs by nothing.
  for (std::size_t v = 0; v < vocab; ++v)
    if (w.log_q[v] == -infinity && w.log_p[v] == -infinity) w.d[v] = 0;
}

template <class Real>
void RowModel::finish_gradient(std::span<double> dlogits) const {
  round_all(dtype_of(pipeline_.scaled_logits_grad, student_), dlogits);
  if (temperature_ != 1) {
    const Real inverse = 1 / static_cast<Real>(temperature_);
    for (double& value : dlogits) value = static_cast<Real>(value) * inverse;
  }
  round_all(dtype_of(pipeline_.dlogits, student_), dlogits);
}

template <class Real>
double RowModel::run_formula(Workspace& w, bool ignored, std::span<double> dlogits) const {
  const Constants<Real> c(beta_, divisor_, ignored);
  double loss = 0;
  switch (pipeline_.formula) {
    case Formula::difference: loss = difference(w, c, dlogits); break;
    case Formula::log_mixture: loss = log_mixture(w, c, pipeline_.guarded, ignored, dlogits); break;
    case Formula::log_mixture_autograd:
      loss = log_mixture_autograd(w, c, pipeline_.guarded, dtype_of(pipeline_.log_softmax_grad, student_),
                                  dlogits);
      break;
    case Formula::softplus: loss = softplus_form(w, c, beta_, dlogits); break;
    case Formula::one_pass:
      loss = static_cast<Real>(one_pass(w, *plan_, Constants<float>(beta_, divisor_, ignored), dlogits));
      break;
  }
  if (!dlogits.empty()) finish_gradient<Real>(dlogits);
  return loss;
}

double RowModel::run(Workspace& w, bool ignored, std::span<double> dlogits) const {
  if (pipeline_.guarded && !(has_distribution(w.x) && has_distribution(w.y))) {
    std::fill(dlogits.begin(), dlogits.end(), nan);
    return nan;
  }
  if (pipeline_.formula != Formula::one_pass) log_softmax(w);
  return pipeline_.arithmetic == Arithmetic::fp32 ? run_formula<float>(w, ignored, dlogits)
                                                  : run_formula<double>(w, ignored, dlogits);
}

}  // namespace fljsd
