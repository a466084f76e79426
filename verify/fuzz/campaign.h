// SPDX-License-Identifier: Apache-2.0
// A campaign: random and directed cases against one candidate, until a budget is spent.
//
//   const auto candidate = make_candidate("exec:python3 kernel.py");
//   CampaignOptions options;
//   options.seconds = 60;
//   const CampaignReport report = run_campaign(*candidate, options);
//
// On each recipe the checks that ask whether there is an answer at all come first: does it answer, does it
// leave its inputs alone, does it give the same again at once and after another case, with other contents of
// its result buffers. Then its answer is compared with the oracle's, and then one or two properties of the
// catalogue, chosen at random. What fails is confirmed, shrunk, written to the corpus, and the campaign goes
// on; a kind of failure that is known already is counted, not reported again.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "verify/candidates/candidate.h"
#include "verify/cases/recipe.h"

namespace fljsd {

// In every count, a "case" is one evaluation of the candidate. The oracle's evaluations are not counted.
using Cases = Index;

// Shrinking one counterexample ends at whichever comes first.
struct ShrinkLimits {
  Cases cases = 3000;
  double seconds = 20;
};

struct CampaignProgress {
  Cases cases = 0;
  double seconds = 0;
  std::size_t findings = 0;
  std::string what;  // "random", "directed", "corpus", "shrinking accuracy of token_loss", ...
  // The largest error over its budget so far, and of which quantity.
  double worst_ratio = 0;
  std::string worst_quantity;
  std::size_t families = 0, properties = 0;  // covered so far
};

struct CampaignOptions {
  std::uint64_t seed = 0;
  // What this run may spend on searching; the first to run out ends it. Neither: 60 s. Replay counts,
  // shrinking does not: it has limits of its own, but near the end of `seconds` it is cut short to a few
  // seconds.
  std::optional<Cases> cases;
  std::optional<double> seconds;
  RecipeRange range;  // its `families` is overwritten by `families` below
  // One recipe in `long_one_in` has one size up to these, and small others: tiles and chunks then repeat. One
  // in `tiles_one_in` has two or three sizes of several tiles, below these as well (verify/fuzz/sizes.h).
  Index long_tokens = 300, long_hidden = 300, long_vocab = 5000;
  int long_one_in = 8, tiles_one_in = 32;
  std::vector<std::string> properties;  // names in campaign_checks(); empty: all
  std::vector<std::string> families;    // names or numbers; empty: all
  // Counterexamples are read from here, replayed first, and written to here; so is the state of the campaign,
  // from which one with the same candidate, seed and selection goes on. Absent: nothing is read or written.
  std::optional<std::filesystem::path> corpus;
  // Recipes that are replayed first as well, but never written to: the committed corpus.
  std::vector<std::filesystem::path> replay;
  ShrinkLimits shrink;
  bool stop_at_first_finding = false;
  double directed_share = 0.25;  // of the recipes, that are mutations of record holders
  std::function<void(const CampaignProgress&)> progress;  // called about ten times a second
  const std::atomic<bool>* stop = nullptr;                // ends the campaign after the present evaluation
};

// One number that was judged, for the reader of a finding.
struct JudgedValue {
  std::string what;  // "token_loss[3]", "student_weight_grad[0, 2]"
  double got = 0;
  double truth = 0;
  double allowed = 0;      // |got − truth| that the class allows; of the row's 2-norm for gradient matrices
  bool certified = false;  // truth is the double nearest to the exact value
};

// A failure, as a kind that a campaign reports once.
struct FindingKind {
  std::string property;  // one of campaign_checks()
  std::string quantity;  // "loss", "token_loss", "student_input_grad", ...; empty where there is none
  std::string manner;    // "off", "not finite", or the name of a Failure::Kind

  std::string text() const;  // "accuracy of token_loss (not finite)"
  auto operator<=>(const FindingKind&) const = default;
};

struct Finding {
  FindingKind kind;
  Recipe recipe;  // shrunk: no recipe one step simpler fails in the same kind, unless a limit was met
  Recipe first;   // as it was found
  double observed = 0, allowed = 0;
  std::string text;                  // one sentence
  std::optional<JudgedValue> value;  // the worst number, where one was compared with the truth
  std::string diagnostics;           // the end of an external candidate's stderr
  Cases cases_until = 0;             // evaluations of the campaign up to the first failure
  Cases shrink_cases = 0;
  bool minimal = false;    // shrinking ended by itself
  bool reproduced = true;  // false: it did not fail again when it was tried alone
  // Then: arguments of `fljsd fuzz` for the same search up to here, which is where it may fail again.
  std::string search;
  bool replayed = false;                      // it came from a corpus
  Cases repeats = 0;                          // later failures of the same kind that were not reported again
  std::optional<std::filesystem::path> file;  // the corpus entry
  std::optional<std::filesystem::path> case_file;  // the case, as safetensors
};

// The largest error/budget of one quantity within one family, and the recipe that holds the record.
struct RecordHolder {
  double ratio = 0;
  double error = 0, budget = 0;
  Recipe recipe;
};

// What was exercised. A check counts once for each recipe on which it was applicable and decided.
struct Coverage {
  std::map<std::string, std::map<std::string, Index>> family_property;   // [family][property]
  std::map<std::string, std::map<std::string, Index>> feature_property;  // [feature][property]
  std::map<std::string, std::map<std::string, Index>> family_feature;    // [family][feature]
  std::map<std::string, Index> not_applicable;                           // [property]
  std::map<std::string, Index> skipped;  // [feature that the candidate lacks, or "unsupported: ..."]
};

struct CampaignReport {
  std::string candidate;
  Declaration declaration;
  std::uint64_t seed = 0;

  Cases cases = 0;          // evaluations of this run, those of shrinking included
  Cases shrink_cases = 0;   // those of shrinking
  Index recipes = 0;        // recipes of this run
  double seconds = 0;       // of this run
  Cases earlier_cases = 0;  // evaluations of the runs that this one continues
  Index earlier_recipes = 0;
  bool resumed = false;
  bool interrupted = false;  // by `stop`
  Index replayed = 0;        // corpus entries that were replayed
  Index doubtful = 0;        // failures that were dropped because the oracle's own error could explain them

  // Over all runs that this one continues.
  Coverage coverage;
  std::map<std::string, std::map<std::string, RecordHolder>> records;  // [family][quantity]
  std::map<std::string, double> worst_ratio;           // [quantity], of everything compared with the oracle
  std::map<std::string, double> worst_property_ratio;  // [property], of its comparison nearest to failing
  std::vector<Finding> findings;
  std::vector<std::string> warnings;  // sentences: a claim that is too modest, a corpus file that is broken

  bool clean() const { return findings.empty(); }
  double cases_per_second() const { return seconds > 0 ? static_cast<double>(cases) / seconds : 0; }
};

// What can be checked: the engine's own checks in the order in which they are made, then the catalogue.
struct CampaignCheck {
  std::string name;
  std::string statement;  // one sentence
};
const std::vector<CampaignCheck>& campaign_checks();

// Throws std::invalid_argument, one sentence, for a selection that names something unknown or a range that
// nothing fits; FileError for a corpus that cannot be read or written; and std::runtime_error if an external
// candidate does not introduce itself.
CampaignReport run_campaign(Candidate& candidate, const CampaignOptions& options);

// Judges one recipe by the selected checks (all choices that a property leaves open are tried), without
// shrinking. The findings, at most one for each kind. Throws InvalidProblem if the recipe is none, or needs
// what the candidate lacks, and std::invalid_argument as above.
std::vector<Finding> judge_recipe(Candidate& candidate, const Recipe& recipe,
                                  const std::vector<std::string>& properties = {});

}  // namespace fljsd
