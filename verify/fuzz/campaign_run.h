// SPDX-License-Identifier: Apache-2.0
// The inside of run_campaign(): what a campaign knows while it runs. campaign.cpp searches, convict.cpp makes
// findings of failures, replay.cpp deals with the corpus folder.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "verify/cases/random.h"
#include "verify/fuzz/corpus.h"
#include "verify/fuzz/examine.h"

namespace fljsd {

// Whether the check is a property of the catalogue that a campaign draws; "inputs-unchanged" is not, because
// the engine looks at the inputs of every case.
bool is_catalogued(const std::string& name);

// The finding says what the failure says; diagnostics that it has stay where the failure has none.
void tell(Finding& finding, const Failed& failed);
// As it was found, at that evaluation, and not shrunk yet.
Finding finding_of(const Recipe& recipe, const Failed& failed, Cases cases_until);

class Campaign {
 public:
  Campaign(Candidate& candidate, const CampaignOptions& options);

  CampaignReport run();

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
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
  std::string search_arguments(Cases cases) const;
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

}  // namespace fljsd
