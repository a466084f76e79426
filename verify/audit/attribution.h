// SPDX-License-Identifier: Apache-2.0
// Which rounding step costs what: the way from float64 throughout to a candidate's arithmetic, one step at a
// time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reference/rounding.h"
#include "verify/audit/report.h"

namespace fljsd {

// A pipeline on the way, and the step that was taken last.
struct WaypointPipeline {
  std::string step;  // "logits summed in fp32"
  std::string does;  // how the target does it
  Pipeline pipeline;
};

// As waterfall() of pipeline.h, with its first step taken in two: products summed in fp32, then logits stored
// in fewer bits. The last waypoint is `target`.
std::vector<WaypointPipeline> waypoints(const Pipeline& target);

// Errors of `result` in the four numbers of Errors; the distance of two results when `from` is not the truth.
// All are relative to the truth. `from` has the parts of `truth`; what `to` lacks is absent.
Errors distance(const Result& from, const Result& to, const Result& truth);

// What an answer of all zeros scores.
Errors zero_errors(const Result& truth);

// `results[i]` belongs to waypoints[i].
Attribution attribute(const std::string& candidate, const std::vector<WaypointPipeline>& waypoints,
                      std::span<const Result* const> results, const Result& truth);

}  // namespace fljsd
