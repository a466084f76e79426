// SPDX-License-Identifier: Apache-2.0
// fljsd bench: how fast the CUDA stages are, beside the plain matrix products.
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/audit/audit.h"
#include "verify/bench/bench.h"
#include "verify/bench/peers.h"
#include "verify/bench/render.h"
#include "verify/cli/build_info.h"
#include "verify/commands/commands.h"
#include "verify/report/output_file.h"
#include "verify/report/progress.h"
#include "verify/report/terminal.h"

namespace fljsd {
namespace {

struct BenchOptions {
  BenchRequest request;
  bool no_tune = false, peers = false;
  std::string json, csv;
};

int run(BenchOptions& options, const std::string& command_line) {
  if (const std::string why = why_no_gpu(); !why.empty())
    throw UsageError("there is no GPU to measure: " + why);
  BenchRequest& request = options.request;
  request.tune = !options.no_tune;
  const bool json_to_stdout = options.json == "-";
  require_outputs({{"--json", options.json, true}, {"--csv", options.csv}});

  const auto begin = std::chrono::steady_clock::now();
  BenchRecord record;
  {
    Progress progress;
    record = run_bench(
        request, [&](const std::string& what) { progress.step(what); },
        [&](const BenchRow& row) { progress.step(bench_line(row)); });
  }
  if (options.peers) {
    const std::vector<BenchRow> peers = run_peers(request);
    record.rows.insert(record.rows.end(), peers.begin(), peers.end());
  }
  record.run = record_run();
  record.run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  record.run.command = command_line;
  record.run.seed = request.seed;
  record.run.version = build_info().version;
  record.run.commit = build_info().commit;
  record.run.compiler = build_info().compiler;
  record.run.build_type = build_info().build_type;

  if (!options.json.empty() && !json_to_stdout) write_text(options.json, bench_json(record).dump(1) + '\n');
  if (!options.csv.empty()) write_text(options.csv, bench_csv(record));
  if (json_to_stdout) {
    fmt::print("{}\n", bench_json(record).dump(1));
  } else {
    fmt::print("{}", bench_text(record, terminal_width()));
  }
  const std::vector<std::string> findings = bench_findings(record);
  for (const std::string& finding : findings) fmt::print(stderr, "{}\n", styled(Style::bad, finding));
  return findings.empty() ? exit_status::fine : exit_status::finding;
}

}  // namespace

Action setup_bench(CLI::App& app) {
  const auto options = std::make_shared<BenchOptions>();
  BenchRequest& request = options->request;
  app.footer(
      "Needs a GPU. All stages take turns over the same tensors, so that clocks that fall with power are "
      "the\n"
      "same for all; outputs are checked against float64 truth. Exit status 1 if losses are off or differ\n"
      "between runs.");
  app.add_option("--tokens", request.tokens, "Numbers of tokens; default 1024,2048,4096,8192")
      ->delimiter(',')
      ->check(whole_number(1));
  app.add_option("--vocab", request.vocab, "Vocabulary; default 128256")->check(whole_number(1));
  app.add_option("--hidden", request.hidden, "Hidden size of both models; default 4096")
      ->check(whole_number(1));
  app.add_option(
         "--inputs", request.inputs,
         fmt::format("Families of inputs: {}; default uniform (what the published workload draws) and "
                     "normal",
                     fmt::join(bench_inputs(), ", ")))
      ->delimiter(',')
      ->check(one_of("family of inputs", bench_inputs()));
  app.add_option(
         "--stage", request.variants,
         fmt::format("Stages: {}; chunk sizes may follow, as in chunked-vocab:TOKENS:VOCAB:GRADIENT_VOCAB. "
                     "Default: all. The baselines hopper-gemm and hopper-log-sum-exp run when named",
                     fmt::join(bench_stages(), ", ")))
      ->delimiter(',');
  app.add_option("--pass", request.passes, "forward, full (with gradients); default both")
      ->delimiter(',')
      ->check(one_of("pass", {"forward", "full"}));
  app.add_option("--rounds", request.rounds,
                 "Samples of each stage up to 2048 tokens, half as many (at least 10) beyond; default 30")
      ->check(whole_number(1));
  app.add_option("--beta", request.beta, "Default 0.5")->check(real_number(0, 1));
  app.add_option("--temperature", request.temperature, "Default 1")->check(real_number(1e-6, 1e6));
  app.add_option(
         "--truth-tokens", request.truth_tokens,
         "Compare with float64 truth up to this many tokens (takes 8 bytes for three times all weights "
         "and logits); default 1024")
      ->check(whole_number(0));
  app.add_option("--warm-up", request.warm_up, "Seconds of matrix products before the samples; default 1")
      ->check(real_number(0, 60));
  app.add_option("--pause", request.pause,
                 "Seconds without work before each sample; default 0: the clock of steady work")
      ->check(real_number(0, 60));
  app.add_option("--seed", request.seed, "Of the inputs")->check(whole_number(0));
  app.add_flag("--no-tune", options->no_tune, "Use the first algorithm of cuBLASLt's heuristics");
  app.add_flag(
      "--peers", options->peers,
      "Time PyTorch, torch.compile and Liger-Kernel too, on the same uniform tensors, after the stages "
      "(python3 needs PyTorch)");
  app.add_option(
      "--json", options->json,
      "Write the run record, every sample included, to this file; - prints it in place of the tables");
  app.add_option("--csv", options->csv,
                 "Write times and memory in the columns of Liger-Kernel's benchmark data");
  return [options](const std::string& command_line) { return run(*options, command_line); };
}

}  // namespace fljsd
