// SPDX-License-Identifier: Apache-2.0
// fljsd audit: how accurate fused linear + JSD pipelines are.
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/audit/audit.h"
#include "verify/audit/render.h"
#include "verify/cli/build_info.h"
#include "verify/commands/commands.h"
#include "verify/report/output_file.h"
#include "verify/report/progress.h"
#include "verify/report/terminal.h"

namespace fljsd {
namespace {

struct AuditOptions {
  AuditRequest request;
  bool quick = false, full = false;
  Index tokens = 0, hidden = 0, vocab = 0;
  const CLI::Option *has_tokens = nullptr, *has_hidden = nullptr, *has_vocab = nullptr;
  double timeout = 600;
  std::string json, csv, html;
};

std::vector<std::string> names_of(const std::vector<RoundingModel>& models) {
  std::vector<std::string> names;
  for (const RoundingModel& model : models) names.emplace_back(model.name);
  return names;
}

int run(AuditOptions& options, const std::string& command_line) {
  AuditRequest& request = options.request;
  request.effort = options.quick ? Effort::quick : options.full ? Effort::full : Effort::standard;
  if (options.has_tokens->count() > 0) request.tokens = options.tokens;
  if (options.has_hidden->count() > 0) request.hidden = options.hidden;
  if (options.has_vocab->count() > 0) request.vocab = options.vocab;
  const AuditPlan plan = make_plan(request);
  // Before minutes of work, not after them.
  const bool json_to_stdout = options.json == "-";
  require_outputs({{"--json", options.json, true}, {"--csv", options.csv}, {"--html", options.html}});
  const Programs programs = make_programs(plan.programs, names_of(plan.candidates), options.timeout);

  const auto begin = std::chrono::steady_clock::now();
  AuditReport report;
  {
    Progress progress;
    report = run_audit(plan, programs, [&](const std::string& what) { progress.step(what); });
  }
  report.run = record_run();
  report.run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report.run.command = command_line;
  report.run.seed = request.seed;
  report.run.version = build_info().version;
  report.run.commit = build_info().commit;
  report.run.compiler = build_info().compiler;
  report.run.build_type = build_info().build_type;

  // Files first: `fljsd audit --json F | head` must not lose F.
  if (!options.json.empty() && !json_to_stdout) write_text(options.json, audit_json(report).dump(2) + '\n');
  if (!options.csv.empty()) write_text(options.csv, audit_csv(report));
  if (!options.html.empty()) write_text(options.html, audit_html(report));
  if (json_to_stdout) {
    fmt::print("{}\n", audit_json(report).dump(2));
  } else {
    fmt::print("{}", audit_text(report, terminal_width()));
  }
  return report.pass() ? exit_status::fine : exit_status::finding;
}

}  // namespace

Action setup_audit(CLI::App& app) {
  const auto options = std::make_shared<AuditOptions>();
  AuditRequest& request = options->request;
  std::vector<std::string> family_names, candidate_names;
  for (const Family& family : families()) {
    family_names.emplace_back(family.name);
    family_names.push_back(std::to_string(family.number));
  }
  for (const RoundingModel& model : rounding_models()) candidate_names.emplace_back(model.name);
  const std::string models = fmt::format("{}", fmt::join(candidate_names, ", "));
  for (const CandidateEntry& entry : list_candidates())
    if (!find_rounding_model(entry.name)) candidate_names.push_back(entry.name);

  app.footer(
      "Judges CPU models of where published pipelines round, or programs and GPU stages: on small cases\n"
      "of every input family, then in depth at the published size, with gradients, certified losses of\n"
      "a few tokens, and what each rounding step of a model costs. At that size a program gets a case\n"
      "of 2 GB. Exit status 1 if a candidate breaks the class it declares.");
  app.add_option(
         "--family", request.families,
         "Only this family (name or number; may be repeated), in the survey and in depth; fljsd gen --list "
         "shows them")
      ->check(one_of("family", family_names));
  app.add_option("--candidate", request.candidates,
                 fmt::format("Only this candidate (may be repeated): {}; exec:COMMAND for a program of yours "
                             "(docs/verify_your_kernel.md); or another that fljsd fuzz --list shows",
                             models))
      ->check([known = one_of("candidate", candidate_names)](const std::string& name) {
        return name.starts_with("exec:") || name.starts_with("zoo:") ? std::string() : known(name);
      });
  options->has_tokens =
      app.add_option("--tokens", options->tokens,
                     "Tokens of the workloads in depth, all judged; default: a sample of 1024")
          ->check(whole_number(1));
  options->has_hidden =
      app.add_option("--hidden", options->hidden, "Their hidden size; default 4096")->check(whole_number(1));
  options->has_vocab =
      app.add_option("--vocab", options->vocab,
                     "Their vocabulary; default 128256. The survey is never larger than these three")
          ->check(whole_number(1));
  app.add_option("--timeout", options->timeout,
                 "Seconds that an exec: candidate may take for one case; default 600")
      ->check(real_number(0.001, 1e6));
  app.add_option("--seed", request.seed, "Of all inputs and samples; default 0")->check(whole_number(0));
  const auto quick = app.add_flag("--quick", options->quick,
                                  "8 tokens of the published workload in depth: about half a minute");
  app.add_flag("--full", options->full, "All 1024 tokens in depth: takes long")->excludes(quick);
  app.add_option("--json", options->json,
                 "Write the report to this file as JSON; - prints it in place of the tables");
  app.add_option("--csv", options->csv, "Write the report to this file as CSV");
  app.add_option("--html", options->html,
                 "Write the report to this file as one page with drawings, which needs no network");
  return [options](const std::string& command_line) { return run(*options, command_line); };
}

}  // namespace fljsd
