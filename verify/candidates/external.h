// SPDX-License-Identifier: Apache-2.0
// exec:COMMAND — an implementation in any language, spoken to in JSON lines. docs/verify_your_kernel.md has
// the protocol.
#pragma once

#include <chrono>
#include <filesystem>

#include "verify/candidates/candidate.h"
#include "verify/candidates/line_process.h"

namespace fljsd {

struct ExternalLimits {
  std::chrono::milliseconds start =
      std::chrono::seconds(120);  // until the answer to hello: imports, compilation
  std::chrono::milliseconds answer = std::chrono::seconds(60);  // for one case; the first may compile
  std::chrono::milliseconds exit =
      std::chrono::seconds(30);  // after its input is closed; a framework takes its time
};

// Starts the process at the first use and again after anything that ended it. Cases travel as files in a
// folder of its own, in memory where the system offers that, removed with the candidate.
class ExternalCandidate : public Candidate {
 public:
  explicit ExternalCandidate(std::string command, ExternalLimits limits = {});
  ~ExternalCandidate() override;

  std::string name() const override { return "exec:" + command_; }
  std::string description() const override { return "external process"; }
  // Throws std::runtime_error, one sentence with the end of its stderr, when the process does not introduce
  // itself.
  Declaration declaration() override;
  Outcome compute(const Case& c, const Request& request) override;
  // If it said so when it introduced itself: files are packed, so it then lays the tensors out itself as the
  // file's metadata say.
  bool takes_views() const override { return strided_; }
  Outcome compute_views(const Problem& problem, const Options& options, const Request& request) override;
  std::optional<Failure> reset() override;

 private:
  void start();
  Failure failure(Failure::Kind kind, std::string text);
  Failure broken_off(LineProcess::Read read, std::chrono::milliseconds limit);

  std::string command_;
  ExternalLimits limits_;
  std::filesystem::path folder_;
  std::unique_ptr<LineProcess> process_;
  std::optional<Declaration> declaration_;
  bool strided_ = false;
  std::uint64_t number_ =
      0;  // of the next case: every result file has a name of its own, so a stale one cannot pass
};

}  // namespace fljsd
