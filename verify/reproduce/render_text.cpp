// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/report/number.h"
#include "verify/report/table.h"
#include "verify/reproduce/render.h"

namespace fljsd {
namespace {

std::string provider_name(const std::string& provider) {
  return provider == "torch" ? "PyTorch" : provider == "liger" ? "Liger" : provider;
}

// Milliseconds or MiB.
std::string amount(double value) {
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 1000 ? 1 : 0);
}

std::string times(const std::optional<double>& ratio) {
  return ratio ? short_number(*ratio) : "";
}

Style style(Reproduction verdict) {
  switch (verdict) {
    case Reproduction::reproduced: return Style::good;
    case Reproduction::not_reproduced: return Style::bad;
    default: return Style::dim;
  }
}

std::string published_table(const PublishedComparison& c, const std::string& metric, int width) {
  const bool speed = metric == "speed";
  std::vector<std::string> headings{"implementation\npass, tokens",
                                    "published\n" + std::string(speed ? "ms" : "MiB"),
                                    "measured\n" + std::string(speed ? "ms" : "MiB"), "measured/\npublished"};
  if (speed) headings.insert(headings.end(), {"floors, ms:\narithmetic", "\nbandwidth", "published/\nfloor"});
  headings.emplace_back("\nverdict");
  Table table(headings, {headings.size() - 1});
  for (const PublishedRow& r : c.published) {
    if (r.metric != metric) continue;
    std::vector<Cell> line{fmt::format("{} {} {}", provider_name(r.provider), r.mode, r.tokens),
                           amount(r.published), r.measured ? amount(*r.measured) : "–",
                           r.measured ? fmt::format("{:.2f}", *r.measured / r.published) : ""};
    if (speed) {
      line.emplace_back(r.floor ? fmt::format("{:.2f}", r.floor->arithmetic_ms) : "");
      line.emplace_back(r.floor ? fmt::format("{:.2f}", r.floor->bandwidth_ms) : "");
      line.emplace_back(r.floor ? short_number(r.published / r.floor->binding_ms(), 2) : "");
    }
    line.emplace_back(name(r.verdict), style(r.verdict));
    table.add(line);
  }
  return table.text(2, width);
}

// Rows that need the same words, once.
std::string explanations(const PublishedComparison& c, int width) {
  std::string text;
  std::vector<std::string> said;
  for (const PublishedRow& r : c.published) {
    if (r.explanation.empty()) continue;
    const std::string line = fmt::format("{} {}{}: {}", provider_name(r.provider), r.mode,
                                         r.metric == "memory" ? " memory" : "", r.explanation);
    if (std::find(said.begin(), said.end(), line) != said.end()) continue;
    said.push_back(line);
    const bool varies = r.provider == "liger" && r.metric == "speed";
    text +=
        "  " + wrapped(varies ? fmt::format("{} ({} tokens)", line, r.tokens) : line, width - 2, 4) + '\n';
  }
  return text;
}

std::string stage_table(const PublishedComparison& c, int width) {
  Table table({"stage\npass, tokens", "\nms", "over plain\nproducts", "floors, ms:\narithmetic",
               "\nbandwidth", "over the\nfloor", "published PyTorch\n/ this", "published Liger\n/ this"});
  for (const StageRow& r : c.stages) {
    table.add({fmt::format("{} {} {}", r.stage, r.mode, r.tokens), fmt::format("{:.2f}", r.milliseconds),
               fmt::format("{:.2f}", r.ratio), r.floor ? fmt::format("{:.2f}", r.floor->arithmetic_ms) : "",
               r.floor ? fmt::format("{:.2f}", r.floor->bandwidth_ms) : "",
               r.floor ? fmt::format("{:.2f}", r.milliseconds / r.floor->binding_ms()) : "",
               times(r.over_torch), times(r.over_liger)});
  }
  return table.text(2, width);
}

std::string rates_text(const std::optional<GpuRates>& rates) {
  if (!rates) return "a GPU whose datasheet is not known here, so there are no floors";
  return fmt::format("{} ({:.0f} TFLOP/s dense bf16, {:.2f} TB/s)", rates->source, rates->flops * 1e-12,
                     rates->bandwidth * 1e-12);
}

nlohmann::ordered_json to_json(const std::optional<Floors>& floor) {
  if (!floor) return {};
  return {{"arithmetic_ms", floor->arithmetic_ms}, {"bandwidth_ms", floor->bandwidth_ms}};
}
nlohmann::ordered_json to_json(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

std::string comparison_text(const PublishedComparison& c, int width) {
  std::string text = fmt::format("{}\n\n", styled(Style::bold, "Published, and measured again"));
  text += wrapped(fmt::format("Published: {}, {}, Liger-Kernel {}; vocab {}, hidden {}, bf16. {}",
                              c.published_gpu, c.published_date, c.published_version, c.vocab, c.hidden,
                              c.peers_gpu.empty() ? "The published implementations were not measured."
                                                  : fmt::format("Measured: the same implementations, {}, {}.",
                                                                c.peers_gpu, c.peers_date)),
                  width) +
          "\n\n";
  text += published_table(c, "speed", width);
  text += "\n" + published_table(c, "memory", width) + "\n";
  text += explanations(c, width) + "\n";
  text +=
      wrapped(fmt::format(
                  "Floors are those of the published GPU: {}. Arithmetic: 4·T·V·H operations forward and "
                  "8·T·V·H with gradients, over the rate; bandwidth: every input read once and every output "
                  "written once. 'Reproduced' is the same kind of GPU and a time within {:.0f} %.",
                  rates_text(c.published_rates), 100 * reproduction_tolerance),
              width) +
      "\n\n";
  text += fmt::format("{}\n\n", styled(Style::bold, "The stages of this project on the published inputs"));
  text += wrapped(fmt::format("{}: {}, {}.",
                              c.measured_now ? "Measured on this machine"
                                             : "Measured before, from data/measured/h200/benchmark.json",
                              c.measured_gpu, c.measured_date),
                  width) +
          "\n\n";
  text += stage_table(c, width) + "\n";
  text += wrapped(fmt::format(
                      "'gemm' is the matrix products alone. Floors: {}. The last two columns divide times of "
                      "different GPUs and runs: an H200 multiplies at the H100's rate and has 1.4 times its "
                      "bandwidth.",
                      rates_text(c.measured_rates)),
                  width) +
          '\n';
  return text;
}

nlohmann::ordered_json comparison_json(const PublishedComparison& c) {
  nlohmann::ordered_json json{{"schema", 1},
                              {"vocab", c.vocab},
                              {"hidden", c.hidden},
                              {"published_gpu", c.published_gpu},
                              {"published_date", c.published_date},
                              {"measured_gpu", c.measured_gpu},
                              {"measured_date", c.measured_date},
                              {"measured_now", c.measured_now},
                              {"peers_gpu", c.peers_gpu},
                              {"peers_date", c.peers_date},
                              {"published", nlohmann::ordered_json::array()},
                              {"stages", nlohmann::ordered_json::array()}};
  for (const PublishedRow& r : c.published) {
    json["published"].push_back({{"provider", r.provider},
                                 {"pass", r.mode},
                                 {"metric", r.metric},
                                 {"tokens", r.tokens},
                                 {"published", r.published},
                                 {"single_sample", r.single_sample},
                                 {"measured", to_json(r.measured)},
                                 {"floor", to_json(r.floor)},
                                 {"measured_floor", to_json(r.measured_floor)},
                                 {"verdict", name(r.verdict)},
                                 {"explanation", r.explanation}});
  }
  for (const StageRow& r : c.stages) {
    json["stages"].push_back({{"stage", r.stage},
                              {"pass", r.mode},
                              {"tokens", r.tokens},
                              {"milliseconds", r.milliseconds},
                              {"ratio", r.ratio},
                              {"floor", to_json(r.floor)},
                              {"published_torch_over_this", to_json(r.over_torch)},
                              {"published_liger_over_this", to_json(r.over_liger)}});
  }
  return json;
}

}  // namespace fljsd
