// SPDX-License-Identifier: Apache-2.0
// fljsd fuzz: searches for a case that an implementation gets wrong.
#include <atomic>
#include <csignal>
#include <limits>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/cases/safetensors.h"
#include "verify/commands/commands.h"
#include "verify/fuzz/campaign.h"
#include "verify/fuzz/corpus.h"
#include "verify/fuzz/render.h"
#include "verify/report/number.h"
#include "verify/report/output_file.h"
#include "verify/report/progress.h"
#include "verify/report/suggest.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

struct FuzzOptions {
  CampaignOptions campaign;
  std::string candidate, corpus, recipe, json;
  std::vector<std::string> replay;
  double seconds = 60, timeout = 0;
  Cases cases = 0;
  Index max_tokens = 0, max_hidden = 0, max_vocab = 0;
  bool list = false, first = false;
  const CLI::Option *has_seconds = nullptr, *has_cases = nullptr;
  std::vector<const CLI::Option*> of_search;  // which mean nothing where only given recipes are judged
};

// The first signal asks the campaign to end, so that its report is printed; the next one ends the program as
// ever.
std::atomic<bool> interrupted = false;

class Interruptible {
 public:
  Interruptible() {
    interrupted = false;
    struct sigaction ask {};
    ask.sa_handler = [](int) { interrupted = true; };
    ask.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    for (std::size_t i = 0; i < std::size(signals); ++i) {
      sigaction(signals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(signals[i], &ask, nullptr);
    }
  }
  ~Interruptible() {
    for (std::size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &before_[i], nullptr);
  }

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM};
  struct sigaction before_[std::size(signals)];
};

// The most important first: a narrow terminal cuts the line.
std::string progress_line(const CampaignProgress& p) {
  std::string line = fmt::format("{}: {} evaluations, {:.0f}/s", p.what, p.cases,
                                 p.seconds > 0 ? static_cast<double>(p.cases) / p.seconds : 0.0);
  if (p.findings > 0) line += fmt::format(", {} finding{}", p.findings, p.findings == 1 ? "" : "s");
  line += fmt::format(", {} families, {} checks", p.families, p.properties);
  if (p.worst_ratio > 0)
    line += fmt::format(", worst {} of the budget ({})", percent(p.worst_ratio), p.worst_quantity);
  return line;
}

int list_everything(const std::string& json) {
  if (!json.empty()) {
    nlohmann::ordered_json list{{"candidates", nlohmann::ordered_json::array()},
                                {"checks", nlohmann::ordered_json::array()}};
    for (const CandidateEntry& entry : list_candidates())
      list["candidates"].push_back({{"name", entry.name}, {"description", entry.description}});
    for (const CampaignCheck& check : campaign_checks())
      list["checks"].push_back({{"name", check.name}, {"statement", check.statement}});
    if (json == "-") {
      fmt::print("{}\n", list.dump(2));
      return exit_status::fine;
    }
    write_text(json, list.dump(2) + '\n');
  }
  constexpr int indent = 32;
  const int width = std::min(terminal_width(), 110) - indent;
  const auto print = [&](const std::string& name, const std::string& text) {
    fmt::print("  {:<{}}{}\n", name, indent - 2, wrapped(text, width, indent));
  };
  fmt::print("Candidates\n");
  for (const CandidateEntry& entry : list_candidates()) print(entry.name, entry.description);
  fmt::print("\nChecks (--property)\n");
  for (const CampaignCheck& check : campaign_checks()) print(check.name, check.statement);
  fmt::print("\nFamilies: fljsd gen --list\n");
  return exit_status::fine;
}

int finish(const FuzzOptions& options, const CampaignReport& report, const std::string& text) {
  // The file first: `fljsd fuzz --json F | head` must not lose F.
  if (!options.json.empty() && options.json != "-")
    write_text(options.json, campaign_json(report, options.candidate).dump(2) + '\n');
  if (options.json == "-") {
    fmt::print("{}\n", campaign_json(report, options.candidate).dump(2));
  } else {
    fmt::print("{}", text);
  }
  return report.clean() ? exit_status::fine : exit_status::finding;
}

// --recipe and --replay: these recipes and nothing else, each by its own property unless others are named.
int judge_recipes(const FuzzOptions& options, Candidate& candidate) {
  for (const CLI::Option* option : options.of_search)
    if (option->count() > 0)
      throw UsageError(
          fmt::format("--recipe and --replay judge what they name without a search; {} cannot stand "
                      "beside them.",
                      option->get_name()));
  std::vector<CorpusEntry> entries;
  if (!options.recipe.empty()) entries.push_back({parse_recipe(options.recipe), {}, ""});
  for (const std::string& file : options.replay) entries.push_back(read_entry(file));
  CampaignReport report;
  report.candidate = candidate.name();
  report.declaration = candidate.declaration();
  for (const CorpusEntry& entry : entries) {
    std::vector<std::string> properties = options.campaign.properties;
    if (properties.empty() && !entry.kind.property.empty()) properties = {entry.kind.property};
    for (Finding& finding : judge_recipe(candidate, entry.recipe, properties))
      report.findings.push_back(std::move(finding));
  }
  std::string text = styled(Style::bold, options.candidate) + "\n";
  std::size_t number = 0;
  for (const Finding& finding : report.findings)
    text += finding_text(finding, ++number, options.candidate, std::min(terminal_width(), 110));
  text += report.clean() ? fmt::format("\n{}: nothing failed.\n", styled(Style::good, "Clean"))
                         : fmt::format("\n{}: {} finding{}.\n", styled(Style::bad, "Convicted"),
                                       report.findings.size(), report.findings.size() == 1 ? "" : "s");
  return finish(options, report, text);
}

int run(FuzzOptions& options) {
  if (options.list) return list_everything(options.json);
  if (options.candidate.empty())
    throw UsageError("--candidate is required; fljsd fuzz --list shows what there is.");
  std::vector<NamedFile> replayed;
  for (const std::string& file : options.replay) replayed.push_back({"--replay", file});
  require_outputs({{"--json", options.json, true}}, replayed);
  const std::unique_ptr<Candidate> candidate = make_candidate(options.candidate, options.timeout);
  if (!options.recipe.empty() || !options.replay.empty()) return judge_recipes(options, *candidate);

  CampaignOptions& campaign = options.campaign;
  if (options.has_cases->count() > 0) campaign.cases = options.cases;
  if (options.has_seconds->count() > 0 || !campaign.cases) campaign.seconds = options.seconds;
  if (!options.corpus.empty()) campaign.corpus = options.corpus;
  campaign.stop_at_first_finding = options.first;
  const auto limit = [](Index max, Index& small, Index& large) {
    if (max == 0) return;
    small = std::min(small, max);
    large = max;
  };
  limit(options.max_tokens, campaign.range.max_tokens, campaign.long_tokens);
  limit(options.max_hidden, campaign.range.max_hidden, campaign.long_hidden);
  limit(options.max_vocab, campaign.range.max_vocab, campaign.long_vocab);

  CampaignReport report;
  {
    const Interruptible interruptible;
    Progress progress;
    campaign.stop = &interrupted;
    campaign.progress = [&](const CampaignProgress& now) { progress.step(progress_line(now)); };
    report = run_campaign(*candidate, campaign);
  }
  return finish(options, report, campaign_text(report, options.candidate, terminal_width()));
}

}  // namespace

Action setup_fuzz(CLI::App& app) {
  const auto options = std::make_shared<FuzzOptions>();
  std::vector<std::string> family_names, check_names;
  for (const Family& family : families()) {
    family_names.emplace_back(family.name);
    family_names.push_back(std::to_string(family.number));
  }
  for (const CampaignCheck& check : campaign_checks()) check_names.push_back(check.name);

  app.footer(
      "Draws small random cases of every input family, compares the candidate's losses and gradients with\n"
      "the reference within the budget of the class that it declares, and checks properties that need no\n"
      "reference. A failure is shrunk to a minimal recipe and printed with one line that reproduces it.\n"
      "Exit status 1 if anything failed. Ctrl-C ends the search and prints the report.");
  app.add_option("--candidate", options->candidate,
                 "What is judged: exec:COMMAND for a program of yours (docs/verify_your_kernel.md), or a "
                 "name from --list");
  options->has_seconds = app.add_option("--seconds", options->seconds, "How long to search; default 60")
                             ->check(real_number(0, std::numeric_limits<double>::infinity()));
  options->has_cases =
      app.add_option("--cases", options->cases,
                     "After how many evaluations of the candidate to end; a check that is begun is finished")
          ->check(whole_number(1));
  app.add_option("--seed", options->campaign.seed, "Of all random choices; default 0")
      ->check(whole_number(0));
  app.add_option("--property", options->campaign.properties,
                 "Only this check (may be repeated); --list shows them")
      ->check(one_of("property", check_names));
  app.add_option("--family", options->campaign.families,
                 "Only this input family (name or number; may be repeated)")
      ->check(one_of("family", family_names));
  app.add_option(
      "--corpus", options->corpus,
      "A folder for counterexamples: replayed first, added to, and with the state from which the same "
      "command goes on");
  app.add_option("--replay", options->replay,
                 "Judge the recipe in this file of a corpus, and nothing else (may be repeated)");
  app.add_option("--recipe", options->recipe, "Judge this recipe, and nothing else");
  app.add_option("--max-tokens", options->max_tokens, "Largest number of tokens; default 300")
      ->check(whole_number(1));
  app.add_option("--max-hidden", options->max_hidden, "Largest hidden size; default 300")
      ->check(whole_number(1));
  app.add_option("--max-vocab", options->max_vocab, "Largest vocabulary; default 5000")
      ->check(whole_number(1));
  app.add_option("--timeout", options->timeout,
                 "Seconds that an exec: candidate may take for one case; default 60")
      ->check(real_number(0.001, 1e6));
  app.add_flag("--first", options->first, "Stop at the first finding");
  app.add_option("--json", options->json,
                 "Write the report to this file as JSON; - prints it in place of the text");
  for (const char* name : {"--seconds", "--cases", "--seed", "--family", "--corpus", "--max-tokens",
                           "--max-hidden", "--max-vocab", "--first"})
    options->of_search.push_back(app.get_option(name));
  app.add_flag("--list", options->list, "List candidates and checks");
  return [options](const std::string&) { return run(*options); };
}

}  // namespace fljsd
