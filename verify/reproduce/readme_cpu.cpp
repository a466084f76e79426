// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/reproduce/render.h"

namespace fljsd {
namespace {

const nlohmann::json& entry(const nlohmann::json& benchmark, const std::string& prefix) {
  for (const nlohmann::json& e : benchmark.at("benchmarks"))
    if (e.at("name").get<std::string>().starts_with(prefix)) return e;
  throw std::invalid_argument("there is no benchmark " + prefix);
}

}  // namespace

std::string readme_truth(const nlohmann::json& benchmark) {
  const nlohmann::json& logits = entry(benchmark, "LogitsBesideDgemm/tokens:256");
  const nlohmann::json& truth = entry(benchmark, "PublishedTruth");
  const nlohmann::json& token = entry(benchmark, "OneCertifiedToken");
  const nlohmann::json& dot = entry(benchmark, "ExactDot");
  const auto number = [](const nlohmann::json& e, const char* key) { return e.at(key).get<double>(); };
  std::string text = fmt::format(
      "`./fljsd bench-cpu` on {} (`data/measured/cpu/benchmark.json`):\n\n| what | |\n|---|---|\n",
      logits.at("label").get<std::string>());
  text += fmt::format(
      "| float64 logits from bf16 inputs, in blocks of 256 tokens | {:.0f} GFLOP/s, {:.2f} of OpenBLAS's "
      "dgemm "
      "in the same run |\n",
      number(logits, "GFLOP/s"), number(logits, "of dgemm"));
  text += fmt::format(
      "| the float64 loss of the published workload: 1024 tokens, vocab 128256, hidden 4096 | {:.0f} s, "
      "{:.1f} "
      "GiB beside the inputs |\n",
      number(truth, "real_time"), number(truth, "GiB beside inputs"));
  text += fmt::format("| a certified enclosure of one token's loss at that size | {:.1f} s |\n",
                      number(token, "real_time"));
  text += fmt::format("| exact dot products of bf16 vectors, one thread | {:.1f}e9 products/s |\n",
                      number(dot, "products/s") / 1e9);
  return text;
}

std::string readme_audit(const std::string& audit) {
  const std::size_t from = audit.find("In depth: published,"), to = audit.find("\n\n  What each", from);
  if (from == audit.npos || to == audit.npos)
    throw std::invalid_argument("the audit has no part 'In depth: published'");
  return "```text\n" + audit.substr(from, to + 1 - from) + "```\n";
}

std::string with_tables(std::string document, const std::filesystem::path& data) {
  const auto file = [&](const char* name) { return read_data_file(data / "measured" / name); };
  const auto fill = [&](const char* name, const auto& table) {
    if (document.find(fmt::format("<!-- begin:{} -->", name)) != document.npos)
      document = replace_section(document, name, table());
  };
  std::optional<BenchRecord> parsed;  // once, for all tables of the document
  const auto record = [&]() -> const BenchRecord& {
    if (!parsed) parsed = parse_bench_json(file("h200/benchmark.json"), "benchmark.json");
    return *parsed;
  };
  fill("speed", [&] { return readme_speed(record()); });
  fill("accuracy", [&] { return readme_accuracy(record()); });
  fill("truth", [&] { return readme_truth(nlohmann::json::parse(file("cpu/benchmark.json"))); });
  fill("audit", [&] { return readme_audit(file("cpu/audit.txt")); });
  return document;
}

}  // namespace fljsd
