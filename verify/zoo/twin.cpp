// SPDX-License-Identifier: Apache-2.0
#include "verify/zoo/twin.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fljsd::zoo {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

template <class Real>
bool is_zero(Real log_prob) {
  return log_prob == -static_cast<Real>(infinity);
}

}  // namespace

template <class Real>
Declaration Twin<Real>::declaration() const {
  return {sizeof(Real) == sizeof(double) ? AccuracyClass::float64 : AccuracyClass::fp32_logits, true, {}};
}

template <class Real>
Result Twin<Real>::run(const Problem& p, const Options& o, const Request& request) {
  problem = p;
  options = o;
  const auto fill = static_cast<Real>(request.fill);
  const auto vocab = static_cast<std::size_t>(problem.vocab());
  Buffers out{std::vector<Real>(static_cast<std::size_t>(problem.tokens()), fill),
              Gradient::Constant(problem.tokens(), problem.student_input.cols, fill),
              Gradient::Constant(problem.vocab(), problem.student_input.cols, fill),
              std::vector<Real>(vocab, fill)};
  clear(out);
  for (const Index t : token_order()) visit(out, t, request.grad);

  Result result;
  if (options.reduction != Reduction::none) result.loss = static_cast<double>(reduce(out.token_loss));
  result.counted = count();
  result.token_loss.assign(out.token_loss.begin(), out.token_loss.end());
  if (!request.grad) return result;
  result.student_input_grad = out.input_grad.template cast<double>();
  result.student_weight_grad = out.weight_grad.template cast<double>();
  if (problem.student_bias) result.student_bias_grad.assign(out.bias_grad.begin(), out.bias_grad.end());
  return result;
}

template <class Real>
void Twin<Real>::clear(Buffers& out) const {
  std::fill(out.token_loss.begin(), out.token_loss.end(), Real{0});
  out.input_grad.setZero();
  out.weight_grad.setZero();
  std::fill(out.bias_grad.begin(), out.bias_grad.end(), Real{0});
}

template <class Real>
void Twin<Real>::visit(Buffers& out, Index token, bool with_grad) {
  if (counts(token)) add_token(out, token, with_grad);
}

template <class Real>
void Twin<Real>::add_token(Buffers& out, Index token, bool with_grad) const {
  const Row log_q = log_softmax(logits(Model::student, token));
  const Row log_p = log_softmax(logits(Model::teacher, token));
  out.token_loss[static_cast<std::size_t>(token)] = token_loss(log_q, log_p);
  if (!with_grad) return;
  Row g = gradients(log_q, log_p);
  for (Real& value : g) value *= gradient_scale();
  add_input_grad(out.input_grad, token, g);
  add_weight_grad(out.weight_grad, token, g);
  add_bias_grad(out.bias_grad, g);
}

template <class Real>
Real Twin<Real>::element(const MatrixView& m, Index row, Index col) const {
  return static_cast<Real>(load(m.dtype, m.data, row * m.row_stride + col));
}

template <class Real>
Real Twin<Real>::dot(Model model, Index token, Index entry) const {
  Real sum = 0;
  for (Index h = 0; h < hidden(model); ++h)
    sum += element(input(model), token, h) * element(weight(model), entry, h);
  return sum;
}

template <class Real>
Real Twin<Real>::bias(Model model, Index entry) const {
  const std::optional<VectorView>& b = bias_vector(model);
  return b ? static_cast<Real>(load(b->dtype, b->data, entry)) : 0;
}

template <class Real>
Real Twin<Real>::logit(Model model, Index token, Index entry) const {
  return (dot(model, token, entry) + bias(model, entry)) / temperature(model);
}

template <class Real>
auto Twin<Real>::logits(Model model, Index token) const -> Row {
  Row x(static_cast<std::size_t>(entries(model)));
  for (std::size_t v = 0; v < x.size(); ++v) x[v] = logit(model, token, static_cast<Index>(v));
  return x;
}

template <class Real>
auto Twin<Real>::normaliser(const Row& x) const -> Normaliser {
  Normaliser n{*std::max_element(x.begin(), x.end()), 0};
  for (const Real value : x) n.sum += std::exp(value - n.max);
  return n;
}

template <class Real>
auto Twin<Real>::log_softmax(const Row& x) const -> Row {
  // NaN, +inf − inf, and −inf − (−inf) of a row without a finite logit all end in a NaN sum.
  const Normaliser n = normaliser(x);
  const Real log_sum = std::log(n.sum);
  Row log_prob(x.size());
  for (std::size_t v = 0; v < x.size(); ++v)
    log_prob[v] = std::isnan(n.sum) ? static_cast<Real>(nan) : (x[v] - n.max) - log_sum;
  return log_prob;
}

template <class Real>
double Twin<Real>::fraction(Model model) const {
  return model == Model::teacher ? beta() : 1 - beta();
}

template <class Real>
double Twin<Real>::share(Model model) const {
  // D_0 = KL(p‖q), where M = q; D_1 = KL(q‖p), where M = p.
  if (beta() == 0) return model == Model::teacher ? 1 : 0;
  if (beta() == 1) return model == Model::student ? 1 : 0;
  return fraction(model);
}

template <class Real>
Real Twin<Real>::score(Model own, Real log_own, Real log_other) const {
  const auto mine = static_cast<Real>(fraction(own));
  const auto others = static_cast<Real>(fraction(own == Model::student ? Model::teacher : Model::student));
  const Real d = log_other - log_own;
  if (mine == 0) return -d;
  // M/own = mine + others·e^d; the larger of the two probabilities is taken out, so that e^d cannot overflow.
  return d > 0 ? -d - std::log(mine * std::exp(-d) + others) : -std::log(mine + others * std::exp(d));
}

template <class Real>
Real Twin<Real>::term(Real log_prob, Real score) const {
  if (is_zero(log_prob)) return 0;
  return std::isinf(score) ? score : std::exp(log_prob) * score;  // inf even where the probability underflows
}

template <class Real>
Real Twin<Real>::divergence(const Row& log_q, const Row& log_p) const {
  const auto student = static_cast<Real>(share(Model::student)),
             teacher = static_cast<Real>(share(Model::teacher));
  Real sum = 0;
  for (std::size_t v = 0; v < log_q.size(); ++v) {
    if (student > 0) sum += student * term(log_q[v], score(Model::student, log_q[v], log_p[v]));
    if (teacher > 0) sum += teacher * term(log_p[v], score(Model::teacher, log_p[v], log_q[v]));
  }
  return sum;
}

template <class Real>
Index Twin<Real>::count() const {
  Index counted = 0;
  for (Index t = 0; t < problem.tokens(); ++t) counted += counts(t);
  return counted;
}

template <class Real>
Real Twin<Real>::divisor() const {
  return options.reduction == Reduction::batchmean ? static_cast<Real>(std::max<Index>(1, count())) : 1;
}

template <class Real>
Real Twin<Real>::reduce(const std::vector<Real>& losses) const {
  return std::accumulate(losses.begin(), losses.end(), Real{0}) / divisor();
}

template <class Real>
Real Twin<Real>::student_kl(const Row& log_q, const Row& log_p) const {
  Real sum = 0;
  for (std::size_t v = 0; v < log_q.size(); ++v)
    sum += term(log_q[v], score(Model::student, log_q[v], log_p[v]));
  return sum;
}

template <class Real>
Real Twin<Real>::gradient(Real log_q, Real log_p, Real kl) const {
  if (beta() == 0) return std::exp(log_q) - std::exp(log_p);
  if (is_zero(log_q)) return 0 * kl;  // 0, or NaN for a row without a distribution
  return static_cast<Real>(share(Model::student)) * std::exp(log_q) *
         (score(Model::student, log_q, log_p) - kl);
}

template <class Real>
auto Twin<Real>::gradients(const Row& log_q, const Row& log_p) const -> Row {
  const Real kl = student_kl(log_q, log_p);
  Row g(log_q.size());
  for (std::size_t v = 0; v < g.size(); ++v) g[v] = gradient(log_q[v], log_p[v], kl);
  return g;
}

template <class Real>
void Twin<Real>::add_input_grad(Gradient& grad, Index token, const Row& g) const {
  for (std::size_t v = 0; v < g.size(); ++v)
    for (Index h = 0; h < grad.cols(); ++h)
      grad(token, h) += g[v] * element(problem.student_weight, static_cast<Index>(v), h);
}

template <class Real>
void Twin<Real>::add_weight_grad(Gradient& grad, Index token, const Row& g) const {
  for (std::size_t v = 0; v < g.size(); ++v)
    for (Index h = 0; h < grad.cols(); ++h)
      grad(static_cast<Index>(v), h) += g[v] * element(problem.student_input, token, h);
}

template <class Real>
void Twin<Real>::add_bias_grad(std::vector<Real>& grad, const Row& g) const {
  for (std::size_t v = 0; v < g.size(); ++v) grad[v] += g[v];
}

template <class Real>
std::vector<Index> Twin<Real>::token_order() {
  std::vector<Index> order(static_cast<std::size_t>(problem.tokens()));
  std::iota(order.begin(), order.end(), Index{0});
  return order;
}

template class Twin<float>;
template class Twin<double>;

}  // namespace fljsd::zoo
