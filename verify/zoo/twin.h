// SPDX-License-Identifier: Apache-2.0
// A plain, right implementation, cut into small steps. Each fault of the zoo overrides one of them.
//
//   x = (A·Wᵀ + bias)/T  →  log q = log-softmax(x)  →  D of each token  →  reduction
//                                                  →  dD/dx · 1/(T·divisor)  →  dX, dW, bias gradient
//
// It is the textbook's algorithm, entry by entry, for every option and format, and shares no arithmetic with
// reference/: an independent second opinion on the semantics of docs/math.md. It computes in Real: with
// double its accuracy class is float64, with float it is fp32-logits.
#pragma once

#include <string>
#include <vector>

#include "verify/candidates/candidate.h"

namespace fljsd::zoo {

enum class Model { student, teacher };

template <class Real>
class Twin {
 public:
  static constexpr DType loss_format = sizeof(Real) == sizeof(double) ? DType::f64 : DType::f32;

  virtual ~Twin() = default;
  Declaration declaration() const;
  virtual Result run(const Problem& problem, const Options& options, const Request& request);

 protected:
  using Row = std::vector<Real>;          // one number for each vocabulary entry
  using Gradient = RowMajorMatrix<Real>;  // of a matrix, while it is summed up

  // Where results go. Before anything is computed they hold what the request says.
  struct Buffers {
    std::vector<Real> token_loss;      // [tokens]
    Gradient input_grad, weight_grad;  // [tokens, student_hidden], [vocab, student_hidden]
    std::vector<Real> bias_grad;       // [vocab]
  };

  // What run() was given, for all steps.
  Problem problem;
  Options options;

  virtual void clear(Buffers& out) const;
  virtual void visit(Buffers& out, Index token, bool with_grad);  // one token that may be ignored
  // One token's loss and its share of the gradients.
  virtual void add_token(Buffers& out, Index token, bool with_grad) const;

  // Reading. Vocabulary entries at or past entries() do not exist; tokens that do not count are not read.
  virtual Real element(const MatrixView& matrix, Index row, Index col) const;
  virtual Index hidden(Model model) const { return input(model).cols; }
  virtual Index entries(Model) const { return options.valid_vocab.value_or(problem.vocab()); }
  virtual std::int64_t label(Index token) const { return (*problem.labels)[static_cast<std::size_t>(token)]; }
  virtual bool counts(Index token) const { return !problem.labels || label(token) != options.ignore_index; }

  // Logits: (Σ_h input[t, h]·weight[v, h] + bias[v]) / temperature.
  virtual Real dot(Model model, Index token, Index entry) const;
  virtual Real bias(Model model, Index entry) const;
  virtual Real temperature(Model) const { return static_cast<Real>(options.temperature); }
  virtual Real logit(Model model, Index token, Index entry) const;
  virtual Row logits(Model model, Index token) const;

  // Log-softmax: (x − max) − log Σ e^{x − max}. A row without a distribution is NaN throughout.
  struct Normaliser {
    Real max, sum;
  };
  virtual Normaliser normaliser(const Row& x) const;
  virtual Row log_softmax(const Row& x) const;

  // Divergence, from log-probabilities: Σ share·prob·log(prob/M), M = Σ fraction·prob, over both models.
  virtual double beta() const { return options.beta; }
  virtual double fraction(Model model) const;  // beta and 1−beta
  virtual double share(Model model) const;     // the same inside; at the endpoints 1 and 0
  // log(own/M) of the model `own`.
  virtual Real score(Model own, Real log_own, Real log_other) const;
  // prob·score; 0 where the probability is 0, exactly.
  virtual Real term(Real log_prob, Real score) const;
  virtual Real divergence(const Row& log_q, const Row& log_p) const;
  virtual Real token_loss(const Row& log_q, const Row& log_p) const { return divergence(log_q, log_p); }

  // Reduction over tokens; losses of those that do not count are 0.
  virtual Index count() const;
  virtual Real divisor() const;
  virtual Real reduce(const std::vector<Real>& losses) const;

  // Gradient of a token's divergence with respect to its logits, and what it is multiplied by afterwards.
  virtual Real student_kl(const Row& log_q, const Row& log_p) const;
  virtual Real gradient(Real log_q, Real log_p, Real kl) const;
  virtual Row gradients(const Row& log_q, const Row& log_p) const;
  virtual Real gradient_scale() const { return 1 / (divisor() * temperature(Model::student)); }

  // Products with the gradient g of one token's logits.
  virtual void add_input_grad(Gradient& grad, Index token, const Row& g) const;
  virtual void add_weight_grad(Gradient& grad, Index token, const Row& g) const;
  virtual void add_bias_grad(std::vector<Real>& grad, const Row& g) const;
  virtual std::vector<Index> token_order();  // in which sums over tokens are taken

  const MatrixView& input(Model m) const {
    return m == Model::student ? problem.student_input : problem.teacher_input;
  }
  const MatrixView& weight(Model m) const {
    return m == Model::student ? problem.student_weight : problem.teacher_weight;
  }
  const std::optional<VectorView>& bias_vector(Model m) const {
    return m == Model::student ? problem.student_bias : problem.teacher_bias;
  }
};

extern template class Twin<float>;
extern template class Twin<double>;

}  // namespace fljsd::zoo
