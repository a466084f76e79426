// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/judge_workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "verify/audit/attribution.h"

namespace fljsd {
namespace {

// Pipelines to run, each once however many candidates pass through it.
class PipelineSet {
 public:
  // Where the pipeline's result will be.
  std::size_t add(const Pipeline& pipeline) {
    const auto found = std::find(pipelines_.begin(), pipelines_.end(), pipeline);
    if (found != pipelines_.end()) return static_cast<std::size_t>(found - pipelines_.begin());
    pipelines_.push_back(pipeline);
    return pipelines_.size() - 1;
  }
  std::span<const Pipeline> pipelines() const { return pipelines_; }

 private:
  std::vector<Pipeline> pipelines_;
};

// Positions in the results of what one candidate needs.
struct CandidateRuns {
  std::size_t own;
  std::vector<WaypointPipeline> waypoints;  // empty without attribution
  std::vector<std::size_t> waypoint_runs;
};

// Biases of -inf among the vocabulary entries that exist.
Index impossible_entries(const Problem& problem, const Options& options) {
  Index count = 0;
  for (const auto& bias : {problem.student_bias, problem.teacher_bias}) {
    if (!bias) continue;
    for (Index v = 0; v < valid_vocab(problem, options); ++v)
      if ((*bias)(v) == -std::numeric_limits<double>::infinity()) ++count;
  }
  return count;
}

// Ignored tokens whose inputs hold NaN or infinity.
Index poisoned_tokens(const Problem& problem, const Options& options) {
  Index count = 0;
  for (Index t = 0; t < problem.tokens(); ++t) {
    if (is_counted(problem, options, t)) continue;
    bool finite = true;
    for (const MatrixView* input : {&problem.student_input, &problem.teacher_input})
      for (Index h = 0; h < input->cols; ++h) finite = finite && std::isfinite((*input)(t, h));
    if (!finite) ++count;
  }
  return count;
}

WorkloadInfo info_of(const Workload& workload, const Problem& problem, const Options& options) {
  const CaseSpec& spec = workload.spec;
  const Family& family = find_family(spec.family);
  WorkloadInfo info;
  info.family = family.name;
  info.family_number = family.number;
  info.tokens = spec.tokens;
  info.judged_tokens = problem.tokens();
  info.student_hidden = problem.student_input.cols;
  info.teacher_hidden = problem.teacher_input.cols;
  info.vocab = problem.vocab();
  info.weight_rows = static_cast<Index>(workload.weight_rows.size());
  info.dtype = name(spec.dtype);
  if (family.strength) info.strength = resolved_strength(spec);
  info.beta = options.beta;
  info.temperature = options.temperature;
  info.seed = spec.seed;
  info.impossible_entries = impossible_entries(problem, options);
  info.poisoned_tokens = poisoned_tokens(problem, options);
  return info;
}

std::vector<CertifiedToken> certify_rows(const Workload& workload, const Problem& problem,
                                         const Options& options, const Truth& truth, const Budgets& budgets) {
  const std::vector<Enclosure> enclosures = certify_token_losses(problem, options, workload.certified_rows);
  std::vector<CertifiedToken> certified;
  for (std::size_t i = 0; i < enclosures.size(); ++i) {
    const auto row = static_cast<std::size_t>(workload.certified_rows[i]);
    const Enclosure& enclosure = enclosures[i];
    CertifiedToken token;
    token.token = workload.spec.token_rows ? (*workload.spec.token_rows)[row] : workload.certified_rows[i];
    token.enclosure = enclosure;
    token.double_tier = truth.result.token_loss[row];
    token.error = std::max(absolute_error(enclosure.lo, token.double_tier),
                           absolute_error(enclosure.hi, token.double_tier));
    token.bound = budgets.truth.token_loss[row];
    certified.push_back(std::move(token));
  }
  return certified;
}

}  // namespace

WorkloadReport judge_workload(const Workload& workload, std::span<const RoundingModel> candidates,
                              const Programs& programs, const OnStep& on_step) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string title(find_family(workload.spec.family).name);
  const auto step = [&](const char* what) { on_step(fmt::format("{}: {}", title, what)); };

  step("making the inputs");
  const Case c = make_case(workload.spec);
  const Problem problem = c.problem();
  Wanted wanted = Wanted::all();
  wanted.weight_grad_rows = workload.weight_rows;

  WorkloadReport report;
  report.info = info_of(workload, problem, c.options);
  step("float64 truth");
  const Truth truth{linear_jsd<double>(problem, c.options, wanted)};
  report.true_loss = truth.result.loss;
  report.zero = zero_errors(truth.result);
  step("budgets");
  const Budgets budgets = make_budgets(c, truth, wanted);

  PipelineSet set;
  std::vector<CandidateRuns> runs;
  for (const RoundingModel& candidate : candidates) {
    CandidateRuns run{set.add(candidate.pipeline), {}, {}};
    if (workload.attribution) run.waypoints = waypoints(candidate.pipeline);
    for (const WaypointPipeline& waypoint : run.waypoints)
      run.waypoint_runs.push_back(set.add(waypoint.pipeline));
    runs.push_back(std::move(run));
  }
  step("candidates");
  const std::vector<Result> results = run_pipelines(problem, c.options, wanted, set.pipelines());

  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const RoundingModel& candidate = candidates[i];
    const Result& result = results[runs[i].own];
    CandidateReport& judged = report.candidates.emplace_back();
    judged.name = candidate.name;
    judged.description = candidate.description;
    judged.errors = distance(truth.result, result, truth.result);
    judged.verdict = judge(budgets, truth, result, candidate.accuracy_class);
    if (!workload.attribution) continue;
    std::vector<const Result*> on_the_way;
    for (const std::size_t run : runs[i].waypoint_runs) on_the_way.push_back(&results[run]);
    report.attributions.push_back(attribute(candidate.name, runs[i].waypoints, on_the_way, truth.result));
  }

  for (const Program& program : programs) {
    step(program.name.c_str());
    report.candidates.push_back(judge_program(program, c, truth, budgets, workload.weight_rows));
  }

  if (!workload.certified_rows.empty()) {
    step("certified tokens");
    report.certified = certify_rows(workload, problem, c.options, truth, budgets);
    report.tensor_core = tensor_core_logits(problem, workload.certified_rows, workload.weight_rows);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace fljsd
