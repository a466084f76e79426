// SPDX-License-Identifier: Apache-2.0
// The corpus folder: what is replayed first, and the state from which a campaign goes on.
#include <fmt/format.h>

#include "verify/cases/safetensors.h"
#include "verify/fuzz/campaign_run.h"
#include "verify/fuzz/state.h"

namespace fljsd {

void Campaign::resume() {
  if (!options_.corpus) return;
  std::optional<CampaignState> state = read_state(state_file(*options_.corpus, report_.candidate, options_));
  if (!state) return;
  report_.resumed = true;
  next_ = state->recipes;
  report_.earlier_recipes = state->recipes;
  report_.earlier_cases = state->cases;
  report_.coverage = std::move(state->coverage);
  report_.records = std::move(state->records);
  report_.worst_ratio = std::move(state->worst_ratio);
  report_.worst_property_ratio = std::move(state->worst_property_ratio);
  failed_before_ = std::move(state->failed);
}

void Campaign::replay() {
  std::vector<std::filesystem::path> files;
  if (options_.corpus) files = entry_files(*options_.corpus);
  for (const std::filesystem::path& file : options_.replay) {
    if (std::filesystem::is_directory(file)) {
      const auto more = entry_files(file);
      files.insert(files.end(), more.begin(), more.end());
    } else {
      files.push_back(file);
    }
  }
  for (const std::filesystem::path& file : files) {
    if (!may_go_on()) return;
    show("corpus");
    CorpusEntry entry;
    try {
      entry = read_entry(file);
    } catch (const FileError& error) {
      report_.warnings.push_back(fmt::format("Not replayed: {}", error.what()));
      continue;
    }
    ++report_.replayed;
    replay_entry(entry);
  }

  // A candidate that passes what it failed is not the one that the earlier runs were about.
  for (const auto& [kind, recipe] : failed_before_) {
    if (failed_recipes_.count(to_text(recipe)) || !replayed_recipes_.count(to_text(recipe))) continue;
    report_.warnings.push_back(fmt::format(
        "{} did not fail again: the candidate has changed since the earlier runs, and counting starts anew.",
        kind.text()));
    next_ = 0;
    report_.earlier_cases = report_.earlier_recipes = 0;
    report_.coverage = {};
    report_.worst_ratio.clear();
    report_.worst_property_ratio.clear();
    report_.resumed = false;
    break;
  }
}

void Campaign::replay_entry(const CorpusEntry& entry) {
  const Recipe recipe = adapted(entry.recipe, report_.declaration.lacks);
  std::optional<Examination> examination;
  try {
    examination.emplace(subject_, oracle_, recipe);
  } catch (const InvalidProblem& error) {
    report_.warnings.push_back(fmt::format("Not replayed: {}: {}", to_text(recipe), error.what()));
    return;
  }
  if (!examination->lacking().empty()) return;
  replayed_recipes_.insert(to_text(recipe));
  std::vector<std::string> names{check_name::answers, check_name::inputs_unchanged};
  for (const char* name : {check_name::deterministic, check_name::stateless, check_name::accuracy})
    if (is_selected(name)) names.push_back(name);
  if (is_selected(entry.kind.property.c_str()) && is_catalogued(entry.kind.property))
    names.push_back(entry.kind.property);
  // A corpus grows: all choices are for the property that an entry is about, one is enough for the rest.
  for (const std::string& name : names)
    for (int choice = 0; choice < (name == entry.kind.property && has_choices(name) ? choices : 1); ++choice)
      if (!note(*examination, name, choice, true)) return;
}

void Campaign::save(bool now) {
  if (!options_.corpus || (!now && seconds_since(saved_) < 2)) return;
  saved_ = Clock::now();
  CampaignState state;
  state.recipes = next_;
  state.cases = report_.earlier_cases + subject_.evaluations();
  state.coverage = report_.coverage;
  state.records = report_.records;
  state.worst_ratio = report_.worst_ratio;
  state.worst_property_ratio = report_.worst_property_ratio;
  for (const Finding& finding : report_.findings)
    if (finding.reproduced) state.failed.emplace_back(finding.kind, finding.recipe);
  write_state(state_file(*options_.corpus, report_.candidate, options_), state);
}

}  // namespace fljsd
