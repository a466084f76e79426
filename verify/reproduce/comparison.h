// SPDX-License-Identifier: Apache-2.0
// fljsd reproduce: the published table beside what was measured, row by row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/bench/record.h"
#include "verify/reproduce/floors.h"
#include "verify/reproduce/published.h"

namespace fljsd {

enum class Reproduction {
  reproduced,          // the same kind of GPU, and within reproduction_tolerance
  not_reproduced,      // the same kind of GPU, and not
  different_hardware,  // measured on another kind of GPU
  not_measured,
};
const char* name(Reproduction verdict);

// Sustained clocks of one kind of GPU differ by about this much from card to card and with the room they are
// in; what is published does not say how they were.
inline constexpr double reproduction_tolerance = 0.10;

// One published time or amount of memory.
struct PublishedRow {
  std::string provider;  // "torch", "liger"
  std::string mode;      // "forward", "full"
  std::string metric;    // "speed" in ms, "memory" in MiB
  Index tokens = 0;
  double published = 0;
  bool single_sample = false;      // its quantiles are equal
  std::optional<double> measured;  // the same implementation here
  Reproduction verdict = Reproduction::not_measured;
  std::optional<Floors> floor;           // of the GPU that it was published for; times only
  std::optional<Floors> measured_floor;  // of the GPU that was measured
  std::string explanation;               // what the number is made of; may be empty
};

// A stage of this project, on the published inputs.
struct StageRow {
  std::string stage, mode;
  Index tokens = 0;
  double milliseconds = 0;
  double ratio = 0;  // to the plain matrix products in the same run
  std::optional<Floors> floor;
  std::optional<double> over_torch, over_liger;  // published time over this one; other hardware, other run
};

struct PublishedComparison {
  std::string published_gpu, published_date, published_version;
  std::string measured_gpu, measured_date;
  std::string peers_gpu, peers_date;  // of the measured published implementations; empty if there are none
  bool measured_now = false;          // false: the committed record
  Index vocab = 0, hidden = 0;
  std::optional<GpuRates> published_rates, measured_rates;
  std::vector<PublishedRow> published;
  std::vector<StageRow> stages;
};

// `published`, `peers`: data in Liger-Kernel's columns; `record`: a benchmark that holds uniform inputs.
PublishedComparison compare(const std::vector<BenchmarkDatum>& published,
                            const std::vector<BenchmarkDatum>& peers, const BenchRecord& record,
                            bool measured_now);

}  // namespace fljsd
