// SPDX-License-Identifier: Apache-2.0
// Faults of a process: it introduces itself properly, and then does not answer a case.
#include "verify/candidates/external.h"
#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

// A shell program that runs `$body` for each case.
class ProcessFault : public ExternalCandidate {
 public:
  ProcessFault(const Fault& fault, const std::string& body)
      : ExternalCandidate("read hello; echo '{\"ok\": true}'; while read line; do " + body + "; done",
                          {.answer = std::chrono::milliseconds(500)}),
        fault_(fault) {}

  std::string name() const override { return fault_.candidate_name(); }
  std::string description() const override { return std::string(fault_.about.note); }

 private:
  Fault fault_;
};

template <class Wrong>
Fault entry() {
  return {Wrong::about, "process", [](const Fault& fault) -> std::unique_ptr<Candidate> {
            return std::make_unique<ProcessFault>(fault, Wrong::body);
          }};
}

struct Hangs {
  static constexpr About about{"hangs", "A deadlock: no answer ever comes."};
  static constexpr const char* body = "sleep 600";
};

struct Crashes {
  static constexpr About about{"crashes", "The process ends in place of an answer."};
  static constexpr const char* body = "kill -SEGV $$";
};

struct PrintsToStdout {
  static constexpr About about{"prints-to-stdout", "A forgotten debug print where the answer belongs."};
  static constexpr const char* body = "echo 'shape: (4, 8)'";
};

struct ResultNotWritten {
  static constexpr About about{"result-not-written", "Success is reported, but there is no result."};
  static constexpr const char* body = "echo '{\"ok\": true}'";
};

struct GivesUp {
  static constexpr About about{"gives-up", "An error is reported for a case that it should support."};
  static constexpr const char* body = "echo '{\"error\": \"out of memory\"}'";
};

}  // namespace

std::vector<Fault> process_faults() {
  return {entry<Hangs>(), entry<Crashes>(), entry<PrintsToStdout>(), entry<ResultNotWritten>(),
          entry<GivesUp>()};
}

}  // namespace fljsd::zoo
