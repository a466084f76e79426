// SPDX-License-Identifier: Apache-2.0
// What an audit found, as plain data: computing fills it (audit.h), rendering reads it (render.h).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "reference/accuracy_class.h"
#include "reference/enclosure.h"
#include "reference/problem.h"
#include "verify/audit/tensor_core_logits.h"
#include "verify/judge/verdict.h"

namespace fljsd {

// What ran, where and when.
struct RunRecord {
  std::string command;  // as typed
  std::string date;     // UTC, ISO 8601
  std::string version, commit, compiler, build_type;
  std::string libraries;  // "Eigen 3.4.0, Boost 1.74.0, MPFR 4.2.0"
  std::string system;     // "Linux 6.1.0 x86_64"
  std::string cpu;
  int threads = 0;
  std::uint64_t seed = 0;
  double seconds = 0;
  std::int64_t peak_memory = 0;  // bytes resident at most
};

// Where a candidate may round, and the format in which it keeps the values of that place.
struct RoundingPlace {
  std::string place;   // "log-softmax"
  std::string format;  // "bf16", "fp32" or "float64"; empty for a place that the candidate does not have
};

// What is judged.
struct CandidateInfo {
  std::string name, description;
  AccuracyClass accuracy_class = AccuracyClass::fp32_logits;  // what it declares
  std::vector<RoundingPlace> places;                          // the same places for all candidates, in order
  std::string formula;                                        // "log mixture"
  bool chunked_weight_grad = false;                           // Chunking::by_sizes
  bool guarded = true;                                        // see Pipeline::guarded
  bool is_model = true;  // false: a program, of which nothing is known but what it declares and answers
};

// The inputs of one workload.
struct WorkloadInfo {
  std::string family;
  int family_number = 0;
  Index tokens = 0;  // of the workload
  Index judged_tokens =
      0;  // the sample of them that was computed; the batch of every loss and gradient below
  Index student_hidden = 0, teacher_hidden = 0, vocab = 0;
  Index weight_rows = 0;  // rows of the weight gradient that were judged
  std::string dtype;
  std::optional<double> strength;
  double beta = 0, temperature = 0;
  std::uint64_t seed = 0;
  // What a pipeline must step around: biases of −inf, and tokens that are ignored and hold NaN or infinity.
  Index impossible_entries = 0, poisoned_tokens = 0;
};

// The errors of one result in the numbers that a reader compares first. Absent: not computed, or the truth is
// not finite.
struct Errors {
  std::optional<double> loss;                // relative
  std::optional<double> token_loss;          // absolute, worst token
  std::optional<double> student_input_grad;  // relative L2 over all tokens; the largest gradients decide it
  // Relative L2 of the median token: where a few tokens have almost all of the gradient, the number above is
  // theirs.
  std::optional<double> median_token_grad;
  std::optional<double> student_weight_grad;  // relative L2 over the judged rows
};

struct CandidateReport {
  std::string name, description;
  Errors errors;
  Verdict verdict;  // by the class that the candidate declares
  // Why there is nothing to judge; empty if there is. Errors and rows of the verdict are then absent.
  std::string no_answer;
  bool broke_down = false;  // it should have had an answer: not merely that it lacks what the case needs
  bool pass() const { return verdict.pass() && !broke_down; }
};

// The largest test ratio of what was judged; infinite where it broke down, absent where nothing was judged.
inline std::optional<double> worst_ratio(const CandidateReport& candidate) {
  if (candidate.broke_down) return std::numeric_limits<double>::infinity();
  const VerdictRow* worst = candidate.verdict.worst();
  return worst ? std::optional(worst->ratio) : std::nullopt;
}

// One step on the way from float64 throughout to a candidate's arithmetic.
struct AttributionStep {
  std::string name;             // "logits to bf16"
  std::string does;             // how the candidate does it
  bool same_as_before = false;  // the candidate does this step as float64 throughout would
  Errors added;                 // distance between the results with and without this step
  Errors total;                 // error with all steps up to this one
};

struct Attribution {
  std::string candidate;
  std::vector<AttributionStep> steps;
};

// One token's loss, certified.
struct CertifiedToken {
  Index token = 0;  // of the workload
  Enclosure enclosure;
  double double_tier = 0;
  double error = 0;  // the largest distance of the double tier from any point of the enclosure
  double bound = 0;  // what the double tier promises
  bool kept() const { return error <= bound; }
};

struct WorkloadReport {
  WorkloadInfo info;
  std::optional<double> true_loss;
  Errors zero;  // what an answer of all zeros scores
  std::vector<CandidateReport> candidates;
  std::vector<Attribution> attributions;
  std::vector<CertifiedToken> certified;
  std::optional<TensorCoreLogits> tensor_core;  // of the certified tokens and the judged rows of the weight
  double seconds = 0;
};

struct AuditReport {
  static constexpr int schema = 1;
  RunRecord run;
  std::vector<CandidateInfo> candidates;
  std::vector<WorkloadReport> survey;    // every family, small
  std::vector<WorkloadReport> in_depth;  // the published size, with attribution and certified tokens

  // Whether every candidate keeps the class that it declares, and the double tier its bound.
  bool pass() const;
};

}  // namespace fljsd
