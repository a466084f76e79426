// SPDX-License-Identifier: Apache-2.0
// One row of a pipeline: from the stored logits of one token to its loss and the stored gradient of its
// logits.
//
// Values are handed over as doubles that hold the rounded values exactly. Sums over the vocabulary are formed
// in the order of tree_sum.h.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "reference/chernoff.h"
#include "reference/problem.h"
#include "reference/rounding/pipeline.h"

namespace fljsd {

// Rounds every value to the format, once.
void round_all(DType dtype, std::span<double> values);

class RowModel {
 public:
  // The pipeline for the rows of a problem, of which `counted` tokens are not ignored.
  RowModel(const Pipeline& pipeline, const Problem& problem, const Options& options, Index counted);

  // Working memory of one row, kept from row to row.
  struct Workspace {
    std::vector<double> x, y;                // scaled logits of student and teacher [vocab]
    std::vector<double> log_q, log_p, d;     // after the log-softmax; d = log p − log q
    std::vector<double> q;                   // softmax of the student
    std::vector<float> x32, y32, dlogits32;  // for the one-pass statistics
  };

  // Turns sums of products [vocab] into scaled logits: adds the bias (empty: none), stores, divides by the
  // temperature, stores. Real is the type that the products were summed in.
  template <class Real>
  void student_logits(std::span<const Real> products, std::span<const double> bias,
                      std::vector<double>& x) const {
    scaled_logits(products, bias, student_, x);
  }
  template <class Real>
  void teacher_logits(std::span<const Real> products, std::span<const double> bias,
                      std::vector<double>& y) const {
    scaled_logits(products, bias, teacher_, y);
  }

  // The loss of the row whose logits are in w.x and w.y, before any reduction. Unless `dlogits` is empty it
  // receives the stored gradient of the unscaled logits, reduction factor and temperature included.
  // `ignored`: the token does not count, and the pipeline, not being guarded, reads it all the same.
  double run(Workspace& w, bool ignored, std::span<double> dlogits) const;

 private:
  template <class Real>
  void scaled_logits(std::span<const Real> products, std::span<const double> bias, DType input,
                     std::vector<double>& x) const;
  void log_softmax(Workspace& w) const;
  template <class Real>
  double run_formula(Workspace& w, bool ignored, std::span<double> dlogits) const;
  template <class Real>
  void finish_gradient(std::span<double> dlogits) const;

  Pipeline pipeline_;
  DType student_, teacher_;  // what Storage::input means for either model
  double beta_, temperature_, divisor_;
  std::optional<OnePassPlan> plan_;  // for Formula::one_pass
};

}  // namespace fljsd
