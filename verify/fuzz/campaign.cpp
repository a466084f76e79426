// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/campaign.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include <fmt/format.h>

#include "verify/cases/random.h"
#include "verify/cases/safetensors.h"
#include "verify/fuzz/corpus.h"
#include "verify/fuzz/examine.h"
#include "verify/fuzz/mutate.h"
#include "verify/fuzz/shrink.h"
#include "verify/fuzz/state.h"
#include "verify/properties/property.h"
#include "verify/report/number.h"
#include "verify/report/suggest.h"

namespace fljsd {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The first recipes of a campaign get every check of the engine's own, later ones a share of those that cost
// evaluations: a candidate that keeps state or is not deterministic shows it soon.
constexpr Index thorough_recipes = 8;
constexpr int deterministic_one_in = 4, stateless_one_in = 8;
// Properties of the catalogue that are tried on a recipe until one applies.
constexpr int property_tries = 4;
// How often a failure is tried alone before it counts as one that depends on what ran before, or on chance.
constexpr int attempts = 3;
// Names of a random number's purposes.
constexpr std::uint64_t recipe_stream = 0x63616d706169676e, choice_stream = 0x63686f696365;

std::vector<std::string> checked_properties(const std::vector<std::string>& selected) {
  std::vector<std::string> names;
  for (const CampaignCheck& check : campaign_checks()) names.push_back(check.name);
  for (const std::string& name : selected)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw std::invalid_argument(unknown_name("property", name, names));
  return selected.empty() ? names : selected;
}

RecipeRange checked_range(const CampaignOptions& options) {
  RecipeRange range = options.range;
  range.families.clear();
  for (const std::string& family : options.families) range.families.push_back(find_family(family).number);
  for (const auto& [size, name] :
       {std::pair(range.max_tokens, "max_tokens"), std::pair(range.max_hidden, "max_hidden"),
        std::pair(range.max_vocab, "max_vocab")})
    if (size < 1)
      throw std::invalid_argument(fmt::format("{} is {}, but it must be at least 1.", name, size));
  return range;
}

class Campaign {
 public:
  Campaign(Candidate& candidate, const CampaignOptions& options)
      : options_(options),
        selected_(checked_properties(options.properties)),
        range_(checked_range(options)),
        subject_(candidate),
        oracle_(subject_.declaration().accuracy_class, subject_.has_grad()) {
    for (const std::string& name : selected_)
      if (is_catalogued(name)) catalogued_.push_back(name);
    if (!options_.cases && !options_.seconds) options_.seconds = 60;
    if (options_.corpus) open_corpus(*options_.corpus);
  }

  CampaignReport run();

 private:
  static bool is_catalogued(const std::string& name) {
    for (const Property& property : properties())
      if (property.name == name)
        return name != check_name::inputs_unchanged;  // the engine looks at every case
    return false;
  }
  bool is_selected(const char* name) const {
    return std::find(selected_.begin(), selected_.end(), name) != selected_.end();
  }

  bool stopped() const { return options_.stop && *options_.stop; }
  Cases searched() const { return subject_.evaluations() - report_.shrink_cases; }
  bool may_go_on() const;
  void show(const std::string& what, bool now = false);

  void resume();
  void replay();
  void replay_entry(const CorpusEntry& entry);
  void search();
  Recipe next_recipe(Index index);
  void examine(const Recipe& recipe, Index index);
  void examine_properties(Examination& examination, const Random& random);
  // Whether the check did not fail.
  bool note(Examination& examination, const std::string& name, int choice, bool replayed = false);
  void cover(const Examination& examination, const std::string& name, const CheckOutcome& outcome);
  void keep_records(const Examination& examination);

  void convict(const Recipe& recipe, const std::string& name, int choice, const CheckOutcome& outcome,
               bool replayed);
  bool fails_again(const Recipe& recipe, const std::string& name, int choice, const FindingKind& kind);
  void reset(const Recipe& recipe);
  // The failure of the shrunk recipe, judged by the certified oracle where that is possible. False if it
  // shows that there is none.
  bool settle(Finding& finding, const std::string& name, int choice);
  void add(Finding finding);

  void save(bool now);
  void warn_of_modesty();

  CampaignOptions options_;
  std::vector<std::string> selected_, catalogued_;
  RecipeRange range_;
  Subject subject_;
  Oracle oracle_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_, saved_ = begin_;
  Index next_ = 0;  // number of the next recipe
  CampaignReport report_;
  std::map<FindingKind, std::size_t> known_;  // the finding that stands for a kind
  std::vector<std::pair<FindingKind, Recipe>> failed_before_;
  std::set<std::string> failed_recipes_, replayed_recipes_;
  Index judged_ = 0;  // answers compared with the oracle
};

bool Campaign::may_go_on() const {
  if (stopped() || (options_.stop_at_first_finding && !report_.findings.empty())) return false;
  if (options_.cases && searched() >= *options_.cases) return false;
  return !options_.seconds || seconds_since(begin_) < *options_.seconds;
}

void Campaign::show(const std::string& what, bool now) {
  if (!options_.progress || (!now && seconds_since(shown_) < 0.1)) return;
  shown_ = Clock::now();
  CampaignProgress progress;
  progress.cases = subject_.evaluations();
  progress.seconds = seconds_since(begin_);
  progress.findings = report_.findings.size();
  progress.what = what;
  for (const auto& [quantity, ratio] : report_.worst_ratio) {
    if (ratio < progress.worst_ratio) continue;
    progress.worst_ratio = ratio;
    progress.worst_quantity = quantity;
  }
  progress.families = report_.coverage.family_property.size();
  std::set<std::string> covered;
  for (const auto& [family, counts] : report_.coverage.family_property)
    for (const auto& [name, count] : counts) covered.insert(name);
  progress.properties = covered.size();
  options_.progress(progress);
}

CampaignReport Campaign::run() {
  report_.candidate = subject_.name();
  report_.declaration = subject_.declaration();
  report_.seed = options_.seed;
  resume();
  replay();
  search();
  if (!(options_.stop_at_first_finding && !report_.findings.empty())) reset(Recipe{});
  report_.cases = subject_.evaluations();
  report_.seconds = seconds_since(begin_);
  report_.interrupted = stopped();
  warn_of_modesty();
  save(true);
  return std::move(report_);
}

// ---- what is examined

void Campaign::search() {
  for (; may_go_on(); ++next_) {
    const Recipe recipe = next_recipe(next_);
    examine(recipe, next_);
    ++report_.recipes;
    save(false);
  }
}

Recipe Campaign::next_recipe(Index index) {
  const Random random(splitmix64(options_.seed, static_cast<std::uint64_t>(index)), recipe_stream);
  const std::uint64_t seed = random.word(0);
  if (random.uniform(1) < options_.directed_share && !report_.records.empty()) {
    show("directed search");
    std::vector<const RecordHolder*> holders;
    for (const auto& [family, by_quantity] : report_.records)
      for (const auto& [quantity, holder] : by_quantity) holders.push_back(&holder);
    const Index number = random.below(2, static_cast<Index>(holders.size()));
    const Recipe& holder = holders[static_cast<std::size_t>(number)]->recipe;
    return adapted(mutated(holder, seed, range_), report_.declaration.lacks);
  }
  show("random search");
  RecipeRange range = range_;
  // All families in turn, so that none is left out in a short campaign.
  if (range.families.empty())
    for (const Family& family : families()) range.families.push_back(family.number);
  range.families = {range.families[static_cast<std::size_t>(index) % range.families.size()]};
  if (random.below(3, std::max(1, options_.long_one_in)) == 0) {
    // One long size, the others small, so that the case is no more work than many others.
    range.max_tokens = std::min<Index>(range.max_tokens, 4);
    range.max_hidden = std::min<Index>(range.max_hidden, 9);
    range.max_vocab = std::min<Index>(range.max_vocab, 33);
    switch (random.below(4, 3)) {
      case 0: range.max_tokens = std::max(range_.max_tokens, options_.long_tokens); break;
      case 1: range.max_hidden = std::max(range_.max_hidden, options_.long_hidden); break;
      default: range.max_vocab = std::max(range_.max_vocab, options_.long_vocab);
    }
  }
  return adapted(random_recipe(seed, range), report_.declaration.lacks);
}

void Campaign::examine(const Recipe& recipe, Index index) {
  std::optional<Examination> made;
  try {
    made.emplace(subject_, oracle_, recipe);
  } catch (const InvalidProblem&) {
    ++report_.coverage.skipped["a mutation that is no case"];
    return;
  }
  Examination& examination = *made;
  if (const FeatureSet lacking = examination.lacking(); !lacking.empty()) {
    for (const Feature feature : all_features())
      if (lacking.has(feature)) ++report_.coverage.skipped[fljsd::name(feature)];
    return;
  }
  const Random random(options_.seed, choice_stream + static_cast<std::uint64_t>(next_));
  if (!note(examination, check_name::answers, 0) || !note(examination, check_name::inputs_unchanged, 0))
    return;
  if (const auto unsupported = examination.unsupported()) {
    ++report_.coverage.skipped["unsupported by its own word"];
    return;
  }
  const auto choice = static_cast<int>(random.below(0, choices));
  const bool thorough = index < thorough_recipes;
  const bool again =
      is_selected(check_name::deterministic) && (thorough || random.below(1, deterministic_one_in) == 0);
  const bool later =
      is_selected(check_name::stateless) && (thorough || random.below(2, stateless_one_in) == 0);
  if (again && !note(examination, check_name::deterministic, 0)) return;
  if (later && !note(examination, check_name::stateless, choice)) return;
  if (is_selected(check_name::accuracy)) {
    const bool accurate = note(examination, check_name::accuracy, 0);
    keep_records(examination);
    if (!accurate) return;
  }
  examine_properties(examination, random);
}

void Campaign::examine_properties(Examination& examination, const Random& random) {
  for (int i = 0; i < property_tries && !catalogued_.empty() && !stopped(); ++i) {
    const auto number = random.below(3 + 2 * i, static_cast<Index>(catalogued_.size()));
    const std::string& name = catalogued_[static_cast<std::size_t>(number)];
    const auto choice = static_cast<int>(random.below(4 + 2 * i, choices));
    const Cases before = subject_.evaluations();
    if (!note(examination, name, choice)) return;
    if (subject_.evaluations() > before) return;  // it said something, or at least it cost something
  }
}

bool Campaign::note(Examination& examination, const std::string& name, int choice, bool replayed) {
  const CheckOutcome outcome = examination.check(name, choice);
  cover(examination, name, outcome);
  if (outcome.doubtful) ++report_.doubtful;
  if (outcome.failed.empty()) return true;
  convict(examination.recipe(), name, choice, outcome, replayed);
  return false;
}

void Campaign::cover(const Examination& examination, const std::string& name, const CheckOutcome& outcome) {
  Coverage& coverage = report_.coverage;
  if (!outcome.applicable) {
    ++coverage.not_applicable[name];
    return;
  }
  const std::string family(find_family(examination.recipe().spec.family).name);
  ++coverage.family_property[family][name];
  const FeatureSet needed = needed_features(examination.example());
  const auto count = [&](const std::string& feature) {
    ++coverage.feature_property[feature][name];
    if (name == check_name::answers) ++coverage.family_feature[family][feature];
  };
  for (const Feature feature : all_features())
    if (needed.has(feature)) count(fljsd::name(feature));
  if (needed.empty()) count("none of these");
  if (outcome.held() && outcome.observed > 0) {
    double& worst = report_.worst_property_ratio[name];
    worst = std::max(worst, outcome.observed / outcome.allowed);
  }
}

void Campaign::keep_records(const Examination& examination) {
  const std::string family(find_family(examination.recipe().spec.family).name);
  if (!examination.rows().empty()) ++judged_;
  for (const VerdictRow& row : examination.rows()) {
    if (!row.judged || !std::isfinite(row.ratio)) continue;
    double& worst = report_.worst_ratio[row.quantity];
    worst = std::max(worst, row.ratio);
    if (!row.pass) continue;  // what has failed is not what the search should climb to
    RecordHolder& holder = report_.records[family][row.quantity];
    if (row.ratio <= holder.ratio && holder.budget > 0) continue;
    holder = {row.ratio, row.error, row.budget, examination.recipe()};
  }
}

// ---- findings

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

  const Failed& failed = outcome.failed.front();
  Finding finding;
  finding.kind = kind;
  finding.recipe = finding.first = recipe;
  finding.observed = failed.observed;
  finding.allowed = failed.allowed;
  finding.text = failed.text;
  finding.value = failed.value;
  finding.diagnostics = failed.diagnostics;
  finding.cases_until = searched();
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
    finding.text += fmt::format("; alone and after a restart it did not fail in {} attempts", attempts);
    report_.shrink_cases += subject_.evaluations() - before;
    if (const auto found = known_.find(finding.kind); found != known_.end()) {
      ++report_.findings[found->second].repeats;
      return;
    }
  }
  for (const FindingKind& candidate : kinds) known_.emplace(candidate, report_.findings.size());
  add(std::move(finding));
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
      finding.observed = failed.observed;
      finding.allowed = failed.allowed;
      finding.text = failed.text;
      finding.value = failed.value;
      if (!failed.diagnostics.empty()) finding.diagnostics = failed.diagnostics;
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

// ---- corpus and state

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

void Campaign::warn_of_modesty() {
  // Enough answers that an error near the budget would have been met: honest implementations of a class come
  // within a tenth of its budgets in the first hundred.
  constexpr Index enough = 200;
  constexpr double far_below = 1e-2;
  if (judged_ < enough || !report_.clean() || report_.worst_ratio.empty()) return;
  if (report_.declaration.accuracy_class == AccuracyClass::float64) return;  // there is none more accurate
  double worst = 0;
  for (const auto& [quantity, ratio] : report_.worst_ratio) worst = std::max(worst, ratio);
  if (worst >= far_below) return;
  report_.warnings.push_back(
      fmt::format("In {} answers no error exceeded {} of what class {} allows: the candidate may claim a "
                  "more accurate class.",
                  judged_, percent(worst), name(report_.declaration.accuracy_class)));
}

}  // namespace

const std::vector<CampaignCheck>& campaign_checks() {
  static const std::vector<CampaignCheck> checks = [] {
    std::vector<CampaignCheck> all = {
        {check_name::answers, "It answers: no crash, no time-out, every part of the result in its shape."},
        {check_name::inputs_unchanged, "No input is written to."},
        {check_name::deterministic,
         "The same case at once again, with other bytes in the result buffers, has the same "
         "answer: in bits where that is declared, else within the budget."},
        {check_name::stateless, "The same case after another one has the same answer."},
        {check_name::accuracy,
         "Losses, losses per token and gradients are within the budget of the declared class "
         "around the reference's answer."},
    };
    for (const Property& property : properties())
      if (property.name != check_name::inputs_unchanged)
        all.push_back({std::string(property.name), std::string(property.statement)});
    return all;
  }();
  return checks;
}

CampaignReport run_campaign(Candidate& candidate, const CampaignOptions& options) {
  return Campaign(candidate, options).run();
}

std::vector<Finding> judge_recipe(Candidate& candidate, const Recipe& recipe,
                                  const std::vector<std::string>& selected) {
  const std::vector<std::string> names = checked_properties(selected);
  Subject subject(candidate);
  Oracle oracle(subject.declaration().accuracy_class, subject.has_grad());
  Examination examination(subject, oracle, recipe);
  std::vector<Finding> findings;
  if (const FeatureSet lacking = examination.lacking(); !lacking.empty())
    throw InvalidProblem(
        fmt::format("the recipe needs {}, which the candidate says it lacks.", text(lacking)));
  examination.use_certified_oracle();
  for (const std::string& name : names) {
    for (int choice = 0; choice < (has_choices(name) ? choices : 1); ++choice) {
      for (const Failed& failed : examination.check(name, choice).failed) {
        if (std::any_of(findings.begin(), findings.end(),
                        [&](const Finding& f) { return f.kind == failed.kind; }))
          continue;
        Finding finding;
        finding.kind = failed.kind;
        finding.recipe = finding.first = recipe;
        finding.observed = failed.observed;
        finding.allowed = failed.allowed;
        finding.text = failed.text;
        finding.value = failed.value;
        finding.diagnostics = failed.diagnostics;
        finding.cases_until = subject.evaluations();
        findings.push_back(std::move(finding));
      }
    }
  }
  return findings;
}

}  // namespace fljsd
