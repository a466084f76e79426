// SPDX-License-Identifier: Apache-2.0
// The campaign engine, held against candidates whose fault is known. Each test names the way in which an
// engine could let a fault pass, blame the wrong thing, or lose what it found.
#include "verify/fuzz/campaign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "verify/candidates/function_candidate.h"
#include "verify/cases/safetensors.h"
#include "verify/fuzz/corpus.h"
#include "verify/fuzz/mutate.h"
#include "verify/fuzz/oracle.h"
#include "verify/fuzz/sizes.h"
#include "verify/fuzz/state.h"
#include "verify/tests/subprocess.h"

namespace fljsd {
namespace {

using test::TemporaryFolder;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// The float64 tier with its result changed by `spoil`.
using Spoil = std::function<void(const Case& c, const Request& request, Result& result)>;
FunctionCandidate spoilt(Spoil spoil, Declaration declaration = {AccuracyClass::float64, true, {}}) {
  return FunctionCandidate(
      "spoilt", "for a test", declaration,
      [spoil = std::move(spoil)](const Case& c, const Request& request) -> Outcome {
        Answer answer{linear_jsd<double>(c.problem(), c.options, wanted_for(c, request))};
        spoil(c, request, answer.result);
        return answer;
      });
}

FunctionCandidate right(Declaration declaration = {AccuracyClass::float64, true, {}}) {
  return spoilt([](const Case&, const Request&, Result&) {}, declaration);
}

CampaignOptions budget(Cases cases, std::uint64_t seed = 1) {
  CampaignOptions options;
  options.cases = cases;
  options.seed = seed;
  return options;
}

CampaignOptions until_first(Cases cases, std::uint64_t seed = 1) {
  CampaignOptions options = budget(cases, seed);
  options.stop_at_first_finding = true;
  return options;
}

Index total(const std::map<std::string, std::map<std::string, Index>>& table, const std::string& column) {
  Index sum = 0;
  for (const auto& [row, counts] : table)
    if (const auto found = counts.find(column); found != counts.end()) sum += found->second;
  return sum;
}

// Fault: an engine that convicts what is right, and counts that do not add up.
TEST(Campaign, ARightCandidateIsCleanAndTheCountsAddUp) {
  Cases calls = 0;
  FunctionCandidate candidate = spoilt([&](const Case&, const Request&, Result&) { ++calls; });
  const CampaignReport report = run_campaign(candidate, budget(900));
  for (const Finding& finding : report.findings)
    ADD_FAILURE() << finding.kind.text() << ": " << finding.text << "\n" << to_text(finding.recipe);
  EXPECT_EQ(report.cases, calls);
  EXPECT_GE(report.cases, 900);
  EXPECT_EQ(report.shrink_cases, 0);
  Index skipped = 0;
  for (const auto& [why, count] : report.coverage.skipped) skipped += count;
  EXPECT_EQ(total(report.coverage.family_property, "answers") + skipped, report.recipes);
  EXPECT_EQ(report.coverage.family_property.size(), families().size());
  for (const Feature feature : all_features()) {
    if (feature == Feature::grad) continue;  // no case needs it by itself
    EXPECT_GT(report.coverage.feature_property.count(name(feature)), 0u) << name(feature);
  }
  EXPECT_EQ(report.worst_ratio.count("student_weight_grad"), 1u);
}

// Fault: a campaign that cannot be repeated, so that nobody can look at what it found.
TEST(Campaign, TheSameSeedGivesTheSameCampaign) {
  const auto run = [](std::uint64_t seed) {
    FunctionCandidate candidate = spoilt([](const Case& c, const Request&, Result& result) {
      if (c.options.temperature != 1) result.student_input_grad *= 1.5;
    });
    return run_campaign(candidate, budget(400, seed));
  };
  const CampaignReport a = run(3), b = run(3), other = run(4);
  ASSERT_EQ(a.findings.size(), b.findings.size());
  ASSERT_FALSE(a.findings.empty());
  for (std::size_t i = 0; i < a.findings.size(); ++i) {
    EXPECT_EQ(a.findings[i].kind, b.findings[i].kind);
    EXPECT_EQ(to_text(a.findings[i].recipe), to_text(b.findings[i].recipe));
    EXPECT_EQ(a.findings[i].cases_until, b.findings[i].cases_until);
  }
  EXPECT_EQ(a.cases, b.cases);
  EXPECT_EQ(a.coverage.family_property, b.coverage.family_property);
  EXPECT_EQ(a.worst_ratio, b.worst_ratio);
  EXPECT_NE(a.coverage.family_property, other.coverage.family_property);
}

// Fault: a shrinker that stops early. What fails from vocab 9 on, on multiples of 8 plus 1, fails first at 9.
TEST(Campaign, ShrinksToTheMinimalRecipe) {
  FunctionCandidate candidate = spoilt([](const Case& c, const Request&, Result& result) {
    const Index vocab = c.student_weight.shape[0];
    if (vocab > 8 && vocab % 8 == 1)
      for (double& loss : result.token_loss) loss *= 2;
  });
  const CampaignReport report = run_campaign(candidate, until_first(2000));
  ASSERT_EQ(report.findings.size(), 1u);
  const Finding& finding = report.findings[0];
  EXPECT_EQ(finding.kind, (FindingKind{"accuracy", "token_loss", "off"}));
  EXPECT_TRUE(finding.minimal);
  const CaseSpec& spec = finding.recipe.spec;
  EXPECT_EQ(spec.vocab, 9);
  EXPECT_EQ(spec.tokens, 1);
  EXPECT_EQ(spec.student_hidden, 1);
  EXPECT_TRUE(finding.recipe.edits.empty());
  EXPECT_EQ(spec.options.temperature, 1);
  ASSERT_TRUE(finding.value);
  EXPECT_TRUE(finding.value->certified);
  // The double tier's own error is doubled with its value.
  EXPECT_LE(std::abs(finding.value->got - 2 * finding.value->truth), 2 * finding.value->allowed)
      << finding.text;
}

// Fault: NaN that passes, or a truth of NaN that a number may replace.
TEST(Campaign, NaNNeverPasses) {
  FunctionCandidate makes_nan = spoilt([](const Case& c, const Request&, Result& result) {
    if (c.options.beta == 0 && result.loss) result.loss = nan;
  });
  FunctionCandidate drops_nan = spoilt([](const Case&, const Request&, Result& result) {
    for (double& loss : result.token_loss)
      if (std::isnan(loss)) loss = 0;
  });
  CampaignOptions options = until_first(2000);
  options.properties = {"accuracy"};
  const CampaignReport a = run_campaign(makes_nan, options), b = run_campaign(drops_nan, options);
  ASSERT_EQ(a.findings.size(), 1u);
  EXPECT_EQ(a.findings[0].kind, (FindingKind{"accuracy", "loss", "not finite"}));
  ASSERT_EQ(b.findings.size(), 1u);
  EXPECT_EQ(b.findings[0].kind, (FindingKind{"accuracy", "token_loss", "NaN or infinity lost"}));
}

// Fault: blaming accuracy for what is state, with a counterexample that is right when it is tried alone.
TEST(Campaign, StateBetweenCallsIsConvictedAsSuch) {
  // A workspace that is made anew only when the shapes change.
  std::vector<Index> shape;
  std::vector<double> kept;
  FunctionCandidate candidate = spoilt([&](const Case& c, const Request&, Result& result) {
    const std::vector<Index> now{c.student_input.shape[0], c.student_weight.shape[0]};
    if (now == shape) result.token_loss = kept;
    shape = now;
    kept = result.token_loss;
  });
  const CampaignReport report = run_campaign(candidate, until_first(1000));
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind.property, "stateless");
}

// Fault: a counterexample of a candidate that answers by chance, shrunk to nonsense.
TEST(Campaign, AnAnswerThatChangesIsConvictedBeforeAccuracy) {
  int call = 0;
  FunctionCandidate candidate = spoilt([&](const Case&, const Request&, Result& result) {
    if (++call % 2 == 0) result.student_weight_grad *= 1 + 0x1p-40;
  });
  const CampaignReport report = run_campaign(candidate, until_first(500));
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, (FindingKind{"deterministic", "student_weight_grad", "off"}));
}

// Fault: bits that must agree although the candidate does not promise that; both answers are within the
// budget here.
TEST(Campaign, BitsMayDifferWhereNobodyPromisesThem) {
  int call = 0;
  FunctionCandidate candidate = spoilt(
      [&](const Case&, const Request&, Result& result) {
        if (++call % 2 == 0) result.student_weight_grad *= 1 + 0x1p-40;
      },
      {AccuracyClass::fp32_logits, false, {}});
  const CampaignReport report = run_campaign(candidate, budget(300));
  for (const Finding& finding : report.findings) ADD_FAILURE() << finding.kind.text() << ": " << finding.text;
}

// Fault: a kernel that uses its input as a workspace goes unseen, because the next case has other tensors.
TEST(Campaign, AnOverwrittenInputIsConvicted) {
  FunctionCandidate candidate = spoilt([](const Case& c, const Request&, Result&) {
    if (c.teacher_weight.bytes() > 0) const_cast<std::byte*>(c.teacher_weight.data.get())[0] ^= std::byte{1};
  });
  const CampaignReport report = run_campaign(candidate, until_first(100));
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, (FindingKind{"inputs-unchanged", "", "input modified"}));
  EXPECT_NE(report.findings[0].text.find("teacher_weight"), std::string::npos);
}

// Fault: an element that is never written passes when the buffer happens to hold the right number.
TEST(Campaign, AnUnwrittenElementIsConvicted) {
  FunctionCandidate candidate = spoilt([](const Case& c, const Request& request, Result& result) {
    if (result.student_weight_grad.rows() > 64) result.student_weight_grad(64, 0) = request.fill;
    static_cast<void>(c);
  });
  const CampaignReport report = run_campaign(candidate, until_first(2000));
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind.quantity, "student_weight_grad");
  EXPECT_EQ(report.findings[0].recipe.spec.vocab, 65);
}

// Fault: an engine that ends with the first failure of its candidate, or reports the same one for ever.
TEST(Campaign, GoesOnAfterFailuresAndReportsEachKindOnce) {
  FunctionCandidate candidate(
      "unsteady", "for a test", {AccuracyClass::float64, true, {}},
      [](const Case& c, const Request& request) -> Outcome {
        if (c.options.temperature != 1) throw std::runtime_error("no temperature");
        Answer answer{linear_jsd<double>(c.problem(), c.options, wanted_for(c, request))};
        if (c.labels && request.token_loss) answer.result.token_loss.push_back(0);
        if (c.student_bias && answer.result.loss) answer.result.loss = *answer.result.loss + 1;
        return answer;
      });
  const CampaignReport report = run_campaign(candidate, budget(1000));
  std::map<FindingKind, int> seen;
  for (const Finding& finding : report.findings) ++seen[finding.kind];
  for (const auto& [kind, count] : seen) EXPECT_EQ(count, 1) << kind.text();
  EXPECT_EQ(seen.count({"answers", "", "error"}), 1u);
  EXPECT_EQ(seen.count({"answers", "", "bad result"}), 1u);
  EXPECT_TRUE(
      std::any_of(seen.begin(), seen.end(), [](const auto& kind) { return kind.first.quantity == "loss"; }));
  EXPECT_GE(report.cases - report.shrink_cases, 1000);
}

// Fault: a candidate that lacks much gets hardly any case, or one that it cannot answer.
TEST(Campaign, CasesAreFittedToWhatTheCandidateLacks) {
  Declaration declaration{AccuracyClass::float64, true, {}};
  for (const Feature feature : all_features()) declaration.lacks.add(feature);
  FunctionCandidate candidate("plain", "for a test", declaration,
                              [&](const Case& c, const Request& request) -> Outcome {
                                EXPECT_TRUE((needed_features(c) & declaration.lacks).empty());
                                EXPECT_FALSE(request.grad || request.token_loss);
                                return Answer{linear_jsd<double>(c.problem(), c.options, {})};
                              });
  const CampaignReport report = run_campaign(candidate, budget(300));
  EXPECT_TRUE(report.clean()) << report.findings[0].text;
  // Three families bring labels, biases or a valid_vocab along; all others are for everybody.
  EXPECT_GE(total(report.coverage.family_property, "answers"), report.recipes / 2);
  EXPECT_GT(report.coverage.skipped.size(), 0u);
}

// Fault: convicting by an oracle that is itself off by more than the difference. The candidate's answers are
// the doubles nearest to the truth, and float64 budgets leave little beside the double tier's own error.
TEST(Campaign, NobodyIsConvictedForBeingMoreAccurateThanTheOracle) {
  FunctionCandidate candidate(
      "certified", "for a test", {AccuracyClass::float64, true, {}},
      [](const Case& c, const Request& request) -> Outcome {
        Oracle oracle(AccuracyClass::float64, request.grad);
        if (const auto certified = oracle.certified(c); certified && !certified->budgets.gradients_not_judged)
          return Answer{certified->truth.result};
        return Answer{linear_jsd<double>(c.problem(), c.options, wanted_for(c, request))};
      });
  CampaignOptions options = budget(60);
  options.range.max_tokens = 3;
  options.range.max_hidden = 4;
  options.range.max_vocab = 6;
  options.long_one_in = options.tiles_one_in = 1 << 30;
  options.properties = {"accuracy"};
  const CampaignReport report = run_campaign(candidate, options);
  for (const Finding& finding : report.findings)
    ADD_FAILURE() << finding.kind.text() << ": " << finding.text << "\n" << to_text(finding.recipe);
}

// Fault: sizes beyond what the user allows, a valid_vocab beyond the vocabulary, or second tiles that are
// never met.
TEST(Campaign, LargerSizesKeepToTheirLimits) {
  const SizeLimits usual{300, 300, 5000};
  bool all_beyond_a_tile = false, vocab_beyond_4096 = false, hidden_beyond_256 = false;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Recipe recipe = random_recipe(seed);
    for (const SizeLimits& limits : {usual, SizeLimits{1, 2, 3}}) {
      for (const Recipe& larger :
           {with_one_long_size(recipe, seed, limits), with_several_tiles(recipe, seed, limits)}) {
        const CaseSpec &before = recipe.spec, &spec = larger.spec;
        const auto within = [&](Index size, Index was, Index limit) {
          return size == was || (size >= 1 && size <= limit);
        };
        EXPECT_TRUE(within(spec.tokens, before.tokens, limits.tokens)) << to_text(larger);
        EXPECT_TRUE(within(spec.student_hidden, before.student_hidden, limits.hidden)) << to_text(larger);
        EXPECT_TRUE(within(spec.teacher_hidden, before.teacher_hidden, limits.hidden)) << to_text(larger);
        EXPECT_TRUE(within(spec.vocab, before.vocab, limits.vocab)) << to_text(larger);
        const Index valid = spec.options.valid_vocab.value_or(1);
        EXPECT_TRUE(valid >= 1 && valid <= spec.vocab) << to_text(larger);
        all_beyond_a_tile |= spec.tokens > 64 && spec.student_hidden > 64 && spec.vocab > 64;
        vocab_beyond_4096 |= spec.vocab > 4096;
        hidden_beyond_256 |= spec.student_hidden > 256;
      }
    }
  }
  EXPECT_TRUE(all_beyond_a_tile && vocab_beyond_4096 && hidden_beyond_256);
}

// Fault: a claim that is too modest goes unnoticed; or it counts as a fault.
TEST(Campaign, AModestClaimIsAWarning) {
  FunctionCandidate candidate = right({AccuracyClass::bf16_logits, true, {}});
  const CampaignReport report = run_campaign(candidate, budget(900));
  EXPECT_TRUE(report.clean()) << report.findings[0].text;
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_NE(report.warnings[0].find("more accurate class"), std::string::npos) << report.warnings[0];
}

// Fault: only those properties and families that were asked for.
TEST(Campaign, KeepsToTheSelection) {
  FunctionCandidate candidate = right();
  CampaignOptions options = budget(200);
  options.properties = {"permuted-tokens"};
  options.families = {"peaked", "14"};
  const CampaignReport report = run_campaign(candidate, options);
  for (const auto& [family, counts] : report.coverage.family_property) {
    EXPECT_TRUE(family == "peaked" || family == find_family(14).name) << family;
    for (const auto& [property, count] : counts)
      EXPECT_TRUE(property == "answers" || property == "inputs-unchanged" || property == "permuted-tokens")
          << property;
  }
  options.properties = {"permuted-token"};
  EXPECT_THROW(run_campaign(candidate, options), std::invalid_argument);
}

// Fault: a mutation that throws ends the campaign; one that leaves its family's records is no hill climb.
TEST(Campaign, MutationsAreRecipesOfTheSameFamily) {
  Index made = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Recipe recipe = random_recipe(seed);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Recipe mutant = mutated(recipe, 3 * seed + step, {});
      EXPECT_EQ(mutant.spec.family, recipe.spec.family);
      EXPECT_EQ(to_text(parse_recipe(to_text(mutant))), to_text(mutant));
      try {
        make_case(mutant);
        ++made;
        recipe = mutant;
      } catch (const InvalidProblem&) {  // a strength that does not go with the new size
      }
    }
  }
  EXPECT_GE(made, 4400);
}

// ---- corpus and resumption

// Fault: a campaign in two parts that is not the same as one in one part.
TEST(Campaign, AResumedCampaignIsTheWholeOne) {
  TemporaryFolder folder;
  FunctionCandidate candidate = right();
  CampaignOptions options = budget(150);
  options.corpus = folder / "corpus";
  const CampaignReport first = run_campaign(candidate, options), second = run_campaign(candidate, options);
  EXPECT_FALSE(first.resumed);
  EXPECT_TRUE(second.resumed);
  EXPECT_EQ(second.earlier_cases, first.cases);
  EXPECT_EQ(second.earlier_recipes, first.recipes);
  const CampaignReport whole = run_campaign(candidate, budget(first.cases + second.cases));
  EXPECT_EQ(whole.recipes, first.recipes + second.recipes);
  EXPECT_EQ(whole.coverage.family_property, second.coverage.family_property);
  EXPECT_EQ(whole.worst_ratio, second.worst_ratio);
  // Another seed is another campaign.
  options.seed = 77;
  EXPECT_FALSE(run_campaign(candidate, options).resumed);
}

FunctionCandidate wrong_at_endpoints() {
  return spoilt([](const Case& c, const Request&, Result& result) {
    if (c.options.beta == 1)
      for (double& loss : result.token_loss) loss += 0.25;
  });
}

// Fault: a counterexample that is found once and never looked at again.
TEST(Campaign, CounterexamplesAreWrittenAndReplayedFirst) {
  TemporaryFolder folder;
  CampaignOptions options = until_first(2000);
  options.corpus = folder / "corpus";
  FunctionCandidate candidate = wrong_at_endpoints();
  const CampaignReport found = run_campaign(candidate, options);
  ASSERT_EQ(found.findings.size(), 1u);
  ASSERT_TRUE(found.findings[0].file);
  const CorpusEntry entry = read_entry(*found.findings[0].file);
  EXPECT_EQ(to_text(entry.recipe), to_text(found.findings[0].recipe));
  EXPECT_EQ(entry.kind, found.findings[0].kind);
  EXPECT_TRUE(std::filesystem::exists(*found.findings[0].case_file));

  options.seed = 99;  // one that would have to search
  const CampaignReport again = run_campaign(candidate, options);
  ASSERT_EQ(again.findings.size(), 1u);
  EXPECT_TRUE(again.findings[0].replayed);
  EXPECT_EQ(again.recipes, 0);
  EXPECT_EQ(again.replayed, 1);

  const std::vector<Finding> alone = judge_recipe(candidate, entry.recipe, {entry.kind.property});
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].kind, entry.kind);
}

// Fault: after a repair, the old conviction stays, or the old coverage is taken for the new candidate's.
TEST(Campaign, ARepairedCandidateStartsAnew) {
  TemporaryFolder folder;
  CampaignOptions options = budget(300);
  options.corpus = folder / "corpus";
  FunctionCandidate broken = wrong_at_endpoints(), repaired = right();
  ASSERT_FALSE(run_campaign(broken, options).clean());
  const CampaignReport report = run_campaign(repaired, options);
  EXPECT_TRUE(report.clean());
  EXPECT_FALSE(report.resumed);
  EXPECT_EQ(report.earlier_cases, 0);
  ASSERT_FALSE(report.warnings.empty());
  EXPECT_NE(report.warnings[0].find("has changed"), std::string::npos) << report.warnings[0];
}

// Fault: one broken file in the folder ends the campaign, or is passed over in silence.
TEST(Campaign, ABrokenEntryIsAWarning) {
  TemporaryFolder folder;
  for (const auto& [file, text] :
       {std::pair("a.recipe", "recipe: family=nonsense\n"), std::pair("b.recipe", ""),
        std::pair("c.recipe", "recipe: tokens=1\nrecipe: tokens=2\n")})
    std::ofstream(folder / file) << text;
  CampaignOptions options = budget(20);
  options.corpus = folder.path();
  FunctionCandidate candidate = right();
  const CampaignReport report = run_campaign(candidate, options);
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.warnings.size(), 3u);
  EXPECT_EQ(report.replayed, 0);
}

// Fault: an entry that does not read back as what was written.
TEST(Corpus, AnEntryIsItsText) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const CorpusEntry entry{random_recipe(seed), {"accuracy", "loss", "not finite"}, "loss must be 0"};
    const CorpusEntry read = parse_entry(to_text(entry), "text");
    EXPECT_EQ(to_text(read), to_text(entry));
    EXPECT_EQ(read.kind, entry.kind);
  }
}

// Fault: a state file that is broken is taken for one that is not there.
TEST(Corpus, ABrokenStateIsRefused) {
  TemporaryFolder folder;
  std::ofstream(folder / "state.json") << "{\"schema\": 1, \"recipes\": ";
  EXPECT_THROW(read_state(folder / "state.json"), FileError);
  EXPECT_FALSE(read_state(folder / "none.json"));
}

// Fault: a committed counterexample that no longer parses, or that the reference itself fails.
TEST(Corpus, TheReferencePassesAllThatIsCommitted) {
  const std::filesystem::path folder = std::filesystem::path(FLJSD_SOURCE_DIR) / "data" / "corpus";
  const std::vector<std::filesystem::path> files = entry_files(folder);
  EXPECT_FALSE(files.empty());
  const std::unique_ptr<Candidate> reference = make_candidate("reference");
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.filename().string());
    const CorpusEntry entry = read_entry(file);
    EXPECT_LE(entry.recipe.spec.tokens * entry.recipe.spec.vocab, 100000);
    for (const Finding& finding : judge_recipe(*reference, entry.recipe))
      ADD_FAILURE() << finding.kind.text() << ": " << finding.text;
  }
}

// Fault: a budget that convicts the innocent again. Some committed cases did convict right fp32
// implementations: a sum of hundreds of equal terms beside one, and a weighted sum that overflows before it
// is normalised.
TEST(Corpus, RightFp32ImplementationsPassAllThatIsCommitted) {
  for (const char* name : {"zoo:correct-fp32", "one-pass-fp32", "fp32-logits"}) {
    const std::unique_ptr<Candidate> right = make_candidate(name);
    for (const std::filesystem::path& file :
         entry_files(std::filesystem::path(FLJSD_SOURCE_DIR) / "data" / "corpus"))
      for (const Finding& finding : judge_recipe(*right, read_entry(file).recipe, {"accuracy"}))
        ADD_FAILURE() << name << ", " << file.filename().string() << ": " << finding.text;
  }
}

}  // namespace
}  // namespace fljsd
