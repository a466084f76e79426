// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/audit.h"

#include <mpfr.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include <fmt/format.h>
#include <Eigen/Core>
#include <boost/version.hpp>

#include "reference/parallel.h"
#include "verify/audit/rounding_places.h"

namespace fljsd {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t value = line.find(": ");
    if (value != line.npos) return line.substr(value + 2);
  }
  return "unknown";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof "2026-01-01T00:00:00Z"];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

bool AuditReport::pass() const {
  const auto workload_passes = [](const WorkloadReport& workload) {
    return std::all_of(workload.candidates.begin(), workload.candidates.end(),
                       [](const CandidateReport& candidate) { return candidate.pass(); }) &&
           std::all_of(workload.certified.begin(), workload.certified.end(),
                       [](const CertifiedToken& token) { return token.kept(); }) &&
           (!workload.tensor_core || workload.tensor_core->kept());
  };
  return std::all_of(survey.begin(), survey.end(), workload_passes) &&
         std::all_of(in_depth.begin(), in_depth.end(), workload_passes);
}

AuditReport run_audit(const AuditPlan& plan, const Programs& programs, const OnStep& on_step) {
  AuditReport report;
  const std::vector<Workload>& any = plan.survey.empty() ? plan.in_depth : plan.survey;
  const DType inputs = any.empty() ? DType::bf16 : any.front().spec.dtype;
  for (const RoundingModel& model : plan.candidates)
    report.candidates.push_back(candidate_info(model, inputs));
  for (const Program& program : programs) report.candidates.push_back(candidate_info(program));
  for (const Workload& workload : plan.survey)
    report.survey.push_back(judge_workload(workload, plan.candidates, programs, on_step));
  for (const Workload& workload : plan.in_depth)
    report.in_depth.push_back(judge_workload(workload, plan.candidates, programs, on_step));
  return report;
}

RunRecord record_run() {
  RunRecord run;
  run.date = utc_now();
  run.libraries = fmt::format("Eigen {}.{}.{}, Boost {}.{}.{}, MPFR {}", EIGEN_WORLD_VERSION,
                              EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION, BOOST_VERSION / 100000,
                              BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100, mpfr_get_version());
  utsname system{};
  if (uname(&system) == 0)
    run.system = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  run.cpu = processor_name();
  run.threads = thread_count();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  run.peak_memory = std::int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
  return run;
}

}  // namespace fljsd
