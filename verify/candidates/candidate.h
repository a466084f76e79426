// SPDX-License-Identifier: Apache-2.0
// Anything that can be judged: a rounding model, a CUDA stage, a process in any language.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <variant>

#include "reference/accuracy_class.h"
#include "reference/linear_jsd.h"
#include "verify/candidates/feature.h"

namespace fljsd {

// What a candidate says of itself, once.
struct Declaration {
  AccuracyClass accuracy_class = AccuracyClass::fp32_logits;
  // The same case gives the same bits, also when its tensors are laid out or chunked differently.
  bool deterministic = false;
  FeatureSet lacks;
};

// What is asked of it for one case, beside the loss.
struct Request {
  bool token_loss = true;
  bool grad = true;
  // What result buffers hold before anything is computed, for a candidate that has such buffers: what it
  // forgets to write then shows. An engine asks twice with different values.
  double fill = std::numeric_limits<double>::quiet_NaN();
};

// What it computed, decoded to double. Parts it was not asked for may be empty.
struct Answer {
  Result result;
  DType loss_format = DType::f64;  // what the loss was stored in: ulps are counted in it
};

// It says that it does not support the case, though it did not declare so.
struct Unsupported {
  std::string text;
};

// It did not answer properly. Each of these is a finding.
struct Failure {
  enum class Kind {
    error,           // it reported an error for a case that it should support
    crash,           // the process ended
    time_out,        // no answer in time; the process was killed
    garbage,         // something other than an answer on stdout
    bad_result,      // the result file is missing, broken, or has a tensor of the wrong shape
    input_modified,  // a tensor of the case changed
    hang_at_exit,    // it did not end after its input was closed
  };
  Kind kind;
  std::string text;         // one sentence
  std::string diagnostics;  // the end of what it wrote to stderr, if anything
};
const char* name(Failure::Kind kind);

using Outcome = std::variant<Answer, Unsupported, Failure>;

class Candidate {
 public:
  virtual ~Candidate() = default;

  virtual std::string name() const = 0;
  virtual std::string description() const = 0;
  virtual Declaration declaration() = 0;
  // Called only with cases whose needed_features() it has. Whatever was left over from the call before must
  // not matter.
  virtual Outcome compute(const Case& c, const Request& request) = 0;
  // Whether tensors may lie anywhere in memory: rows padded, addresses unaligned. Asked after declaration(),
  // by which a process says it.
  virtual bool takes_views() const { return false; }
  // The same for such tensors, which live until it returns. Called only if takes_views().
  virtual Outcome compute_views(const Problem&, const Options&, const Request&) {
    return Unsupported{"it cannot be given tensors by address."};
  }
  // Drops all state: an external process is ended and started again at the next case. A failure to end is a
  // finding.
  virtual std::optional<Failure> reset() { return std::nullopt; }
};

// The candidate that a specification names: one of the registry's names, or exec:COMMAND. Throws
// std::invalid_argument, one sentence that lists what exists, for anything else.
// `timeout`: seconds that an external candidate may take for a case, the first after its start included; 0:
// as ExternalLimits has it.
std::unique_ptr<Candidate> make_candidate(const std::string& specification, double timeout = 0);

// Everything in the registry, for help and documentation.
struct CandidateEntry {
  std::string name;
  std::string description;
};
std::vector<CandidateEntry> list_candidates();

}  // namespace fljsd
