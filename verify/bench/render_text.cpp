// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "verify/bench/render.h"
#include "verify/report/number.h"
#include "verify/report/table.h"

namespace fljsd {
namespace {

std::string milliseconds(double value) {
  return fmt::format("{:.3f}", value);
}
std::string error(const std::optional<double>& value) {
  return value ? short_number(*value, 2) : "";
}
std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.0f}", static_cast<double>(bytes) * 1e-6);
}

std::string device_text(const GpuInfo& gpu) {
  std::string text = gpu.name;
  if (!gpu.driver.empty()) text += ", driver " + gpu.driver;
  if (gpu.cuda_runtime > 0)
    text += fmt::format(", CUDA {}.{}", gpu.cuda_runtime / 1000, gpu.cuda_runtime % 1000 / 10);
  return text;
}

std::string clock_text(const BenchRecord& b, const std::string& inputs, const std::string& pass) {
  double low = 0, high = 0, watts = 0;
  int samples = 0;
  for (const ClockRow& c : b.clocks) {
    if (c.inputs != inputs || c.pass != pass || c.samples == 0) continue;
    low = samples == 0 ? c.mean_sm_mhz : std::min(low, c.mean_sm_mhz);
    high = std::max(high, c.mean_sm_mhz);
    watts = std::max(watts, c.mean_watts);
    samples += c.samples;
  }
  if (samples == 0) return "clocks and power were not read: " + b.clock_source;
  return fmt::format("while timed: {:.0f} to {:.0f} MHz on average, at most {:.0f} W on average", low, high,
                     watts);
}

std::string group_text(const BenchRecord& b, const std::string& inputs, const std::string& pass, int width) {
  const bool full = pass == "full";
  std::vector<std::string> headings{"tokens\nstage", "\nms", "10 to\n90 %",
                                    full ? "ratio\nto G4" : "ratio\nto G2"};
  if (full) headings.emplace_back("\nto G6");
  headings.insert(headings.end(), {"workspace\nMB", "token\nerror"});
  if (full) headings.insert(headings.end(), {"input\ngrad error", "weight\ngrad error"});
  Table table(headings);
  std::optional<Index> last;
  for (const BenchRow& r : b.rows) {
    if (r.inputs != inputs || r.pass != pass) continue;
    if (last != r.tokens) {
      std::vector<Cell> line(headings.size(), "");
      line[0] = Cell(fmt::format("{}", r.tokens), Style::bold);
      table.add(line);
      last = r.tokens;
    }
    std::vector<Cell> line{"  " + r.variant, milliseconds(r.median()),
                           milliseconds(r.quantile(0.1)) + " " + milliseconds(r.quantile(0.9)),
                           fmt::format("{:.3f}", r.median_ratio)};
    if (full) line.emplace_back(r.median_ratio_g6 ? fmt::format("{:.3f}", *r.median_ratio_g6) : "");
    line.emplace_back(megabytes(r.workspace_bytes));
    line.emplace_back(error(r.largest_token_error));
    if (full) {
      line.emplace_back(error(r.input_grad_error));
      line.emplace_back(error(r.weight_grad_error));
    }
    table.add(line);
  }
  return fmt::format("\n{} inputs, {}\n{}  {}\n", inputs, full ? "forward and gradients" : "forward",
                     table.text(2, width), clock_text(b, inputs, pass));
}

}  // namespace

std::string bench_line(const BenchRow& r) {
  return fmt::format("{}, {} tokens, {}: {} {:.3f} ms, ratio {:.3f}", r.inputs, r.tokens, r.pass, r.variant,
                     r.median(), r.median_ratio);
}

std::string bench_text(const BenchRecord& b, int width) {
  std::string text =
      fmt::format("{}\nvocab {}, hidden {}, bf16, beta {}, temperature {}, seed {}, algorithms {}\n",
                  device_text(b.gpu), b.vocab, b.hidden, b.beta, b.temperature, b.run.seed,
                  b.tuned ? "chosen by measuring" : "of cuBLASLt's heuristics");
  std::vector<std::pair<std::string, std::string>> groups;
  for (const BenchRow& r : b.rows) {
    const auto group = std::make_pair(r.inputs, r.pass);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  for (const auto& [inputs, pass] : groups) text += group_text(b, inputs, pass, width);
  text += wrapped(
      "\nTimes are medians. A ratio is the median over rounds of the time over the baseline's in the same "
      "round: "
      "G2 is the two matrix products of the forward pass in the inputs' format (stage gemm), G4 the four "
      "with "
      "gradients, G6 both together. Errors are those of the checked run against float64: the largest of a "
      "token's loss in nats, gradients relative in the 2-norm.",
      width);
  return text + '\n';
}

}  // namespace fljsd
