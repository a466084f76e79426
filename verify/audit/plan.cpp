// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "verify/cases/random.h"

namespace fljsd {
namespace {

// How much of the workloads in depth is computed.
struct Depth {
  std::vector<int> families;  // numbers
  Index tokens;               // sample
  Index certified;            // tokens of each workload
};

constexpr int published = 1, kaiming = 2, lm_like = 3;
constexpr Index published_tokens = 1024, published_hidden = 4096, published_vocab = 128256;
constexpr Index judged_weight_rows = 512;

Depth depth_of(Effort effort) {
  switch (effort) {
    case Effort::quick: return {{published}, 8, 1};
    case Effort::standard: return {{published, lm_like, kaiming}, 32, 2};
    case Effort::full: return {{published, lm_like, kaiming}, published_tokens, 2};
  }
  return {};
}

// The survey judges each family at these shapes: a square one at the usual options, an oblong one with
// different hidden sizes away from beta 1/2, and a larger vocabulary.
struct Shape {
  Index tokens, student_hidden, teacher_hidden, vocab;
  double beta, temperature;
};
constexpr std::array survey_shapes = {
    Shape{16, 128, 128, 1000, 0.5, 1},
    Shape{12, 96, 160, 509, 0.1, 1},
    Shape{16, 64, 64, 4096, 0.5, 2},
};

Workload survey_workload(const Family& family, const Shape& shape, const AuditRequest& request) {
  CaseSpec spec;
  spec.family = family.number;
  spec.tokens = std::min(shape.tokens, request.tokens.value_or(shape.tokens));
  spec.student_hidden = std::min(shape.student_hidden, request.hidden.value_or(shape.student_hidden));
  spec.teacher_hidden = std::min(shape.teacher_hidden, request.hidden.value_or(shape.teacher_hidden));
  spec.vocab = std::min(shape.vocab, request.vocab.value_or(shape.vocab));
  spec.options.beta = shape.beta;
  spec.options.temperature = shape.temperature;
  spec.seed = request.seed;
  Workload workload{std::move(spec), {}, {}, false};
  workload.weight_rows = sample(workload.spec.vocab, workload.spec.vocab, 0);
  return workload;
}

Workload deep_workload(const Family& family, const Depth& depth, const AuditRequest& request) {
  CaseSpec spec;
  spec.family = family.number;
  spec.tokens = request.tokens.value_or(published_tokens);
  spec.student_hidden = request.hidden.value_or(published_hidden);
  spec.vocab = request.vocab.value_or(published_vocab);
  spec.seed = request.seed;
  // Who names a number of tokens wants them all.
  const Index judged = std::min(spec.tokens, request.tokens.value_or(depth.tokens));
  if (judged < spec.tokens) spec.token_rows = sample(spec.tokens, judged, request.seed);
  // A freshly initialised head shows in the table of errors what there is to see; who asks for it gets
  // everything.
  const bool attribution = family.number != kaiming || !request.families.empty();
  Workload workload{std::move(spec), {}, {}, attribution};
  workload.weight_rows = sample(workload.spec.vocab, judged_weight_rows, request.seed + 1);
  workload.certified_rows = sample(judged, depth.certified, request.seed + 2);
  return workload;
}

}  // namespace

std::vector<Index> sample(Index size, Index count, std::uint64_t seed) {
  count = std::min(count, size);
  std::vector<Index> chosen(static_cast<std::size_t>(std::max<Index>(count, 0)));
  if (chosen.empty()) return chosen;
  const Permutation shuffled(Random(seed, 0), size);
  for (Index i = 0; i < count; ++i) chosen[static_cast<std::size_t>(i)] = shuffled(i);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

AuditPlan make_plan(const AuditRequest& request) {
  AuditPlan plan;
  for (const RoundingModel& model : rounding_models()) {
    const auto& wanted = request.candidates;
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), model.name) != wanted.end())
      plan.candidates.push_back(model);
  }
  for (const std::string& candidate : request.candidates)
    if (!find_rounding_model(candidate)) plan.programs.push_back(candidate);

  std::vector<const Family*> surveyed, deep;
  const Depth depth = depth_of(request.effort);
  if (request.families.empty()) {
    for (const Family& family : families()) surveyed.push_back(&family);
    for (const int number : depth.families) deep.push_back(&find_family(number));
  } else {
    for (const std::string& name : request.families) surveyed.push_back(&find_family(name));
    deep = surveyed;
  }
  for (const Family* family : surveyed)
    for (const Shape& shape : survey_shapes) plan.survey.push_back(survey_workload(*family, shape, request));
  for (const Family* family : deep) plan.in_depth.push_back(deep_workload(*family, depth, request));
  return plan;
}

}  // namespace fljsd
