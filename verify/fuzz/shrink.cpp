// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/shrink.h"

#include <algorithm>
#include <optional>
#include <set>

namespace fljsd {
namespace {

constexpr std::uint64_t other_seeds = 8;

Index volume(const Recipe& recipe) {
  const CaseSpec& spec = recipe.spec;
  const Index teacher = spec.teacher_hidden != 0 ? spec.teacher_hidden : spec.student_hidden;
  return spec.tokens + spec.vocab + spec.student_hidden + teacher;
}

class Search {
 public:
  Search(const std::function<bool(const Recipe&)>& still_fails, const std::function<bool()>& may_go_on)
      : still_fails_(still_fails), may_go_on_(may_go_on) {}

  // The first of the recipes that fails, if one does and there is time.
  std::optional<Recipe> first_failing(const std::vector<Recipe>& recipes) {
    for (const Recipe& recipe : recipes) {
      if (!may_go_on_()) {
        stopped_ = true;
        return std::nullopt;
      }
      if (!tried_.insert(to_text(recipe)).second) continue;
      if (fails(recipe)) return recipe;
    }
    return std::nullopt;
  }
  bool stopped() const { return stopped_; }
  int tried() const { return static_cast<int>(tried_.size()); }

 private:
  bool fails(const Recipe& recipe) const {
    try {
      return still_fails_(recipe);
    } catch (const InvalidProblem&) {
      return false;  // a strength or valid_vocab that does not go with the smaller size
    }
  }

  const std::function<bool(const Recipe&)>& still_fails_;
  const std::function<bool()>& may_go_on_;
  std::set<std::string> tried_;
  bool stopped_ = false;
};

// Those of simpler(recipe) that are smaller in size, each with some other seeds.
std::vector<Recipe> reseeded(const Recipe& recipe) {
  std::vector<Recipe> found;
  for (const Recipe& smaller : simpler(recipe)) {
    if (volume(smaller) >= volume(recipe)) continue;
    for (std::uint64_t seed = 0; seed < other_seeds; ++seed) {
      found.push_back(smaller);
      found.back().spec.seed = seed;
    }
  }
  return found;
}

// One size anything smaller, the smallest first: what fails at tile + 1 does not fail at half of that, or at
// one less.
std::vector<Recipe> other_sizes(const Recipe& recipe) {
  constexpr Index all_up_to = 40;
  std::vector<Recipe> found;
  const auto add = [&](Index CaseSpec::*member, Index least) {
    const Index size = recipe.spec.*member;
    const auto smaller = [&](Index other) {
      found.push_back(recipe);
      found.back().spec.*member = other;
      Options& options = found.back().spec.options;
      if (options.valid_vocab) options.valid_vocab = std::min(*options.valid_vocab, found.back().spec.vocab);
    };
    for (Index other = least; other < std::min(size, all_up_to); ++other) smaller(other);
    for (const Index other : awkward_sizes())
      if (other >= all_up_to && other < size) smaller(other);
  };
  add(&CaseSpec::vocab, 1);
  add(&CaseSpec::tokens, 1);
  add(&CaseSpec::student_hidden, 1);
  if (recipe.spec.teacher_hidden != 0) add(&CaseSpec::teacher_hidden, 1);
  return found;
}

}  // namespace

Shrunk shrink(const Recipe& recipe, const std::function<bool(const Recipe&)>& still_fails,
              const std::function<bool()>& may_go_on) {
  Search search(still_fails, may_go_on);
  Shrunk shrunk{recipe, false, 0};
  for (;;) {
    std::optional<Recipe> next = search.first_failing(simpler(shrunk.recipe));
    if (!next && !search.stopped()) next = search.first_failing(other_sizes(shrunk.recipe));
    if (!next && !search.stopped()) next = search.first_failing(reseeded(shrunk.recipe));
    if (!next) break;
    shrunk.recipe = std::move(*next);
  }
  shrunk.minimal = !search.stopped();
  shrunk.tried = search.tried();
  return shrunk;
}

}  // namespace fljsd
