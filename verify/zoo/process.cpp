// SPDX-License-Identifier: Apache-2.0
// Faults of a process: it introduces itself properly, and then does not answer a case, or does not end.
#include "verify/candidates/external.h"
#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

// A shell program that runs `body` for each case and `at_end` when its input is closed.
class ProcessFault : public ExternalCandidate {
 public:
  ProcessFault(const Fault& fault, const std::string& body, const std::string& at_end)
      : ExternalCandidate(
            "read hello; echo '{\"ok\": true}'; while read line; do " + body + "; done; " + at_end,
            {.answer = std::chrono::milliseconds(500), .exit = std::chrono::milliseconds(200)}),
        fault_(fault) {}

  std::string name() const override { return fault_.candidate_name(); }
  std::string description() const override { return std::string(fault_.about.note); }

 private:
  Fault fault_;
};

template <class Wrong>
Fault entry() {
  return {Wrong::about, "process", [](const Fault& fault) -> std::unique_ptr<Candidate> {
            return std::make_unique<ProcessFault>(fault, Wrong::body, Wrong::at_end);
          }};
}

struct Ends {
  static constexpr const char* at_end = "exit 0";
};

struct Hangs : Ends {
  static constexpr About about{"hangs", "A deadlock: no answer ever comes."};
  static constexpr const char* body = "sleep 600";
};

struct Crashes : Ends {
  static constexpr About about{"crashes", "The process ends in place of an answer."};
  static constexpr const char* body = "kill -SEGV $$";
};

struct PrintsToStdout : Ends {
  static constexpr About about{"prints-to-stdout", "A forgotten debug print where the answer belongs."};
  static constexpr const char* body = "echo 'shape: (4, 8)'";
};

struct ResultNotWritten : Ends {
  static constexpr About about{"result-not-written", "Success is reported, but there is no result."};
  static constexpr const char* body = "echo '{\"ok\": true}'";
};

struct GivesUp : Ends {
  static constexpr About about{"gives-up", "An error is reported for a case that it should support."};
  static constexpr const char* body = "echo '{\"error\": \"out of memory\"}'";
};

// It declines every case, so that nothing but its end can be judged.
struct HangsAtExit {
  static constexpr About about{"hangs-at-exit", "A thread that is never joined: the process does not end."};
  static constexpr const char* body = "echo '{\"error\": \"unsupported: any case\"}'";
  static constexpr const char* at_end = "sleep 600";
};

}  // namespace

std::vector<Fault> process_faults() {
  return {entry<Hangs>(),   entry<Crashes>(),    entry<PrintsToStdout>(), entry<ResultNotWritten>(),
          entry<GivesUp>(), entry<HangsAtExit>()};
}

}  // namespace fljsd::zoo
