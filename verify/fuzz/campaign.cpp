// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/campaign.h"

#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "verify/fuzz/campaign_run.h"
#include "verify/fuzz/mutate.h"
#include "verify/fuzz/sizes.h"
#include "verify/properties/property.h"
#include "verify/report/number.h"
#include "verify/report/suggest.h"

namespace fljsd {
namespace {

// The first recipes of a campaign get every check of the engine's own, later ones a share of those that cost
// evaluations: a candidate that keeps state or is not deterministic shows it soon.
constexpr Index thorough_recipes = 8;
constexpr int deterministic_one_in = 4, stateless_one_in = 8;
// Properties of the catalogue that are tried on a recipe until one applies.
constexpr int property_tries = 4;
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

}  // namespace

bool is_catalogued(const std::string& name) {
  const auto all = properties();
  return name != check_name::inputs_unchanged &&
         std::any_of(all.begin(), all.end(), [&](const Property& property) { return property.name == name; });
}

Campaign::Campaign(Candidate& candidate, const CampaignOptions& options)
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
  const SizeLimits limits{std::max(range_.max_tokens, options_.long_tokens),
                          std::max(range_.max_hidden, options_.long_hidden),
                          std::max(range_.max_vocab, options_.long_vocab)};
  Recipe recipe;
  if (random.below(3, std::max(1, options_.long_one_in)) == 0) {
    // One long size, the others small, so that the case is no more work than many others.
    range.max_tokens = std::min<Index>(range.max_tokens, 4);
    range.max_hidden = std::min<Index>(range.max_hidden, 9);
    range.max_vocab = std::min<Index>(range.max_vocab, 33);
    recipe = with_one_long_size(random_recipe(seed, range), seed, limits);
  } else if (random.below(4, std::max(1, options_.tiles_one_in)) == 0) {
    recipe = with_several_tiles(random_recipe(seed, range), seed, limits);
  } else {
    recipe = random_recipe(seed, range);
  }
  return adapted(std::move(recipe), report_.declaration.lacks);
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
        findings.push_back(finding_of(recipe, failed, subject.evaluations()));
      }
    }
  }
  return findings;
}

}  // namespace fljsd
