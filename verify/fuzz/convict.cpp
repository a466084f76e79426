// SPDX-License-Identifier: Apache-2.0
// From a failure to a finding: is it known, does it fail alone, what is the smallest example of it.
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "verify/fuzz/campaign_run.h"
#include "verify/fuzz/shrink.h"
#include "verify/properties/property.h"
#include "verify/report/number.h"

namespace fljsd {
namespace {

// How often a failure is tried alone before it counts as one that depends on what ran before, or on chance.
constexpr int attempts = 3;

}  // namespace

void tell(Finding& finding, const Failed& failed) {
  finding.kind = failed.kind;
  finding.observed = failed.observed;
  finding.allowed = failed.allowed;
  finding.text = failed.text;
  finding.value = failed.value;
  if (!failed.diagnostics.empty()) finding.diagnostics = failed.diagnostics;
}

Finding finding_of(const Recipe& recipe, const Failed& failed, Cases cases_until) {
  Finding finding;
  finding.recipe = finding.first = recipe;
  finding.cases_until = cases_until;
  tell(finding, failed);
  return finding;
}

void Campaign::convict(const Recipe& recipe, const std::string& name, int choice, const CheckOutcome& outcome,
                       bool replayed) {
  const FindingKind kind = outcome.failed.front().kind;
  failed_recipes_.insert(to_text(recipe));
  std::vector<FindingKind> kinds = outcome.inaccurate;
  kinds.insert(kinds.begin(), kind);
  for (const FindingKind& candidate : kinds)
    if (const auto found = known_.find(candidate); found != known_.end()) {
      ++report_.findings[found->second].repeats;
      return;
    }

  // A number that is wrong may be one that is left over, or that changes from call to call: that comes first.
  if (name != check_name::deterministic && name != check_name::stateless) {
    for (const char* suspect : {check_name::deterministic, check_name::stateless}) {
      if (!is_selected(suspect) || kind.quantity.empty()) continue;
      Examination again(subject_, oracle_, recipe);
      if (const CheckOutcome other = again.check(suspect, 0); !other.failed.empty()) {
        convict(recipe, suspect, 0, other, replayed);
        return;
      }
    }
  }

  Finding finding = finding_of(recipe, outcome.failed.front(), searched());
  finding.replayed = replayed;

  const Cases before = subject_.evaluations();
  const Clock::time_point begin = Clock::now();
  double limit = options_.shrink.seconds;
  if (options_.seconds)
    limit = std::min(limit, std::max(3.0, (*options_.seconds - seconds_since(begin_)) / 2));
  show("shrinking " + kind.text(), true);
  reset(recipe);
  clear_caches(subject_, recipe);
  finding.reproduced = fails_again(recipe, name, choice, kind);
  if (finding.reproduced) {
    const auto still_fails = [&](const Recipe& simpler_recipe) {
      show("shrinking " + kind.text());
      return fails_again(simpler_recipe, name, choice, kind);
    };
    const auto may_go_on = [&] {
      return !stopped() && subject_.evaluations() - before < options_.shrink.cases &&
             seconds_since(begin) < limit;
    };
    const Shrunk shrunk = shrink(recipe, still_fails, may_go_on);
    finding.recipe = shrunk.recipe;
    finding.minimal = shrunk.minimal;
    const bool is_one = settle(finding, name, choice);
    report_.shrink_cases += subject_.evaluations() - before;
    finding.shrink_cases = subject_.evaluations() - before;
    if (!is_one) {
      ++report_.doubtful;
      return;
    }
  } else {
    // Right when it is alone: it depends on what ran before, or on chance.
    finding.kind.property =
        subject_.declaration().deterministic ? check_name::stateless : check_name::deterministic;
    finding.text += "; alone and after a restart it did not fail again";
    finding.search = search_arguments(finding.cases_until);
    report_.shrink_cases += subject_.evaluations() - before;
    if (const auto found = known_.find(finding.kind); found != known_.end()) {
      ++report_.findings[found->second].repeats;
      return;
    }
  }
  for (const FindingKind& candidate : kinds) known_.emplace(candidate, report_.findings.size());
  add(std::move(finding));
}

// The search is a function of these and of the candidate's answers.
std::string Campaign::search_arguments(Cases cases) const {
  std::string text = fmt::format("--seed {} --cases {}", options_.seed, cases);
  for (const std::string& family : options_.families) text += " --family " + family;
  for (const std::string& property : options_.properties) text += " --property " + property;
  const CampaignOptions usual;
  if (options_.long_tokens != usual.long_tokens)
    text += fmt::format(" --max-tokens {}", options_.long_tokens);
  if (options_.long_hidden != usual.long_hidden)
    text += fmt::format(" --max-hidden {}", options_.long_hidden);
  if (options_.long_vocab != usual.long_vocab) text += fmt::format(" --max-vocab {}", options_.long_vocab);
  return text;
}

bool Campaign::fails_again(const Recipe& recipe, const std::string& name, int choice,
                           const FindingKind& kind) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    Examination examination(subject_, oracle_, recipe);
    if (!examination.lacking().empty()) return false;
    const CheckOutcome outcome = examination.check(name, choice);
    for (const Failed& failed : outcome.failed)
      if (failed.kind == kind) return true;
    // Only what may depend on chance or history is worth another try.
    if (name != check_name::deterministic && name != check_name::stateless) return false;
  }
  return false;
}

void Campaign::reset(const Recipe& recipe) {
  const std::optional<Failure> failure = subject_.reset();
  if (!failure) return;
  const FindingKind kind{check_name::answers, "", name(failure->kind)};
  if (const auto found = known_.find(kind); found != known_.end()) {
    ++report_.findings[found->second].repeats;
    return;
  }
  Finding finding;
  finding.kind = kind;
  finding.recipe = finding.first = recipe;
  finding.observed = std::numeric_limits<double>::infinity();
  finding.text = failure->text;
  finding.diagnostics = failure->diagnostics;
  finding.cases_until = searched();
  known_.emplace(kind, report_.findings.size());
  add(std::move(finding));
}

bool Campaign::settle(Finding& finding, const std::string& name, int choice) {
  for (const bool certified : {true, false}) {
    Examination examination(subject_, oracle_, finding.recipe);
    if (certified && !examination.use_certified_oracle()) continue;
    const CheckOutcome outcome = examination.check(name, choice);
    for (const Failed& failed : outcome.failed) {
      if (failed.kind != finding.kind) continue;
      tell(finding, failed);
      return true;
    }
    // The certified oracle has the last word. Without it, this may be chance: the finding stays as it was
    // found.
    if (certified && name == check_name::accuracy) return false;
  }
  finding.recipe = finding.first;
  finding.minimal = false;
  return true;
}

void Campaign::add(Finding finding) {
  if (options_.corpus) {
    CorpusEntry entry{finding.recipe, finding.kind, ""};
    if (finding.value) {
      entry.note = fmt::format("{} must be {} ({})", finding.value->what, finding.value->truth,
                               hex_float(finding.value->truth));
    } else if (is_catalogued(finding.kind.property)) {
      entry.note = std::string(find_property(finding.kind.property).statement);
    }
    const WrittenEntry written = write_entry(*options_.corpus, entry);
    finding.file = written.file;
    finding.case_file = written.case_file;
  }
  report_.findings.push_back(std::move(finding));
  save(true);
}

}  // namespace fljsd
