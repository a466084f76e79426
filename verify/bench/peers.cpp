// SPDX-License-Identifier: Apache-2.0
#include "verify/bench/peers.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/reproduce/published.h"

namespace fljsd {

std::vector<BenchRow> parse_peers(const std::string& text) {
  std::vector<BenchRow> rows;
  for (const nlohmann::json& json : nlohmann::json::parse(text)) {
    BenchRow row;
    row.inputs = "uniform";
    json.at("variant").get_to(row.variant);
    json.at("tokens").get_to(row.tokens);
    json.at("pass").get_to(row.pass);
    row.baseline = baseline_of(row);
    json.at("milliseconds").get_to(row.milliseconds);
    row.device_bytes = json.at("memory_bytes").get<std::int64_t>();
    rows.push_back(row);
  }
  for (BenchRow& row : rows) {
    const auto base = std::find_if(rows.begin(), rows.end(), [&](const BenchRow& r) {
      return r.variant == "torch-matmul" && r.tokens == row.tokens && r.pass == row.pass;
    });
    if (base == rows.end() || base->milliseconds.size() != row.milliseconds.size())
      throw std::runtime_error("the peers' times lack the plain products that they are compared with.");
    BenchRow ratios;
    for (std::size_t i = 0; i < row.milliseconds.size(); ++i)
      ratios.milliseconds.push_back(row.milliseconds[i] / base->milliseconds[i]);
    row.median_ratio = ratios.median();
  }
  return rows;
}

std::vector<BenchRow> run_peers(const BenchRequest& request) {
  const std::filesystem::path script =
      std::filesystem::path(FLJSD_SOURCE_DIR) / "verify" / "bench" / "peers" / "time_peers.py";
  if (!std::filesystem::exists(script))
    throw std::runtime_error("--peers needs " + script.string() + ", which is not there.");
  const std::filesystem::path out =
      std::filesystem::temp_directory_path() / fmt::format("fljsd-peers-{}.json", getpid());
  const std::string command =
      fmt::format("python3 '{}' --tokens {} --vocab {} --hidden {} --rounds {} --seed {} --json '{}'",
                  script.string(), fmt::join(request.tokens, ","), request.vocab, request.hidden,
                  std::clamp(request.rounds / 3, 3, 10), request.seed, out.string());
  const int status = std::system(command.c_str());
  if (status != 0) {
    std::filesystem::remove(out);
    throw std::runtime_error("the peers could not be measured: " + script.string() + " failed.");
  }
  const std::string text = read_data_file(out);
  std::filesystem::remove(out);
  return parse_peers(text);
}

}  // namespace fljsd
