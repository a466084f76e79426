// SPDX-License-Identifier: Apache-2.0
#include "verify/bench/record.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "verify/report/number.h"

namespace fljsd {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
template <>
Json to_json(const std::optional<double>& value) {
  return value ? json_number(*value) : Json();
}

Json to_json(const BenchRow& r) {
  return {{"inputs", r.inputs},
          {"tokens", r.tokens},
          {"pass", r.pass},
          {"variant", r.variant},
          {"baseline", r.baseline},
          {"milliseconds", r.milliseconds},
          {"median_ms", r.median()},
          {"p10_ms", r.quantile(0.1)},
          {"p90_ms", r.quantile(0.9)},
          {"median_ratio", r.median_ratio},
          {"median_ratio_g6", to_json(r.median_ratio_g6)},
          {"workspace_bytes", r.workspace_bytes},
          {"device_bytes", to_json(r.device_bytes)},
          {"loss", to_json(r.loss)},
          {"loss_error", to_json(r.loss_error)},
          {"largest_token_error", to_json(r.largest_token_error)},
          {"input_grad_error", to_json(r.input_grad_error)},
          {"weight_grad_error", to_json(r.weight_grad_error)},
          {"outputs_repeat", r.outputs_repeat},
          {"plan", r.plan}};
}

Json to_json(const ClockRow& c) {
  return {{"inputs", c.inputs},
          {"tokens", c.tokens},
          {"pass", c.pass},
          {"samples", c.samples},
          {"mean_sm_mhz", c.mean_sm_mhz},
          {"mean_watts", c.mean_watts},
          {"highest_celsius", c.highest_celsius}};
}

template <class T>
void read(const Json& json, const char* key, T& value) {
  if (json.contains(key) && !json[key].is_null()) json[key].get_to(value);
}
void read(const Json& json, const char* key, std::optional<double>& value) {
  if (json.contains(key) && !json[key].is_null()) value = number_from_json(json[key]);
}
void read(const Json& json, const char* key, std::optional<std::int64_t>& value) {
  if (json.contains(key) && !json[key].is_null()) value = json[key].get<std::int64_t>();
}

BenchRow row_from(const Json& json) {
  BenchRow r;
  json.at("inputs").get_to(r.inputs);
  json.at("tokens").get_to(r.tokens);
  json.at("pass").get_to(r.pass);
  json.at("variant").get_to(r.variant);
  json.at("milliseconds").get_to(r.milliseconds);
  if (r.milliseconds.empty()) throw std::invalid_argument("a row has no samples");
  json.at("median_ratio").get_to(r.median_ratio);
  read(json, "median_ratio_g6", r.median_ratio_g6);
  json.at("workspace_bytes").get_to(r.workspace_bytes);
  read(json, "device_bytes", r.device_bytes);
  read(json, "loss", r.loss);
  read(json, "loss_error", r.loss_error);
  read(json, "largest_token_error", r.largest_token_error);
  read(json, "input_grad_error", r.input_grad_error);
  read(json, "weight_grad_error", r.weight_grad_error);
  json.at("outputs_repeat").get_to(r.outputs_repeat);
  read(json, "plan", r.plan);
  r.baseline = baseline_of(r);
  read(json, "baseline", r.baseline);
  return r;
}

ClockRow clock_from(const Json& json) {
  ClockRow c;
  json.at("inputs").get_to(c.inputs);
  json.at("tokens").get_to(c.tokens);
  json.at("pass").get_to(c.pass);
  json.at("samples").get_to(c.samples);
  json.at("mean_sm_mhz").get_to(c.mean_sm_mhz);
  json.at("mean_watts").get_to(c.mean_watts);
  json.at("highest_celsius").get_to(c.highest_celsius);
  return c;
}

}  // namespace

std::string baseline_of(const BenchRow& row) {
  if (row.pass == "forward") return "G2";
  const bool twice = row.variant.starts_with("chunked-vocab") ||
                     row.plan.find("forward and backward: chunked-vocab") != std::string::npos;
  return twice ? "G6" : "G4";
}

double BenchRow::quantile(double p) const {
  if (milliseconds.empty()) return std::nan("");
  std::vector<double> sorted = milliseconds;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<std::size_t>(std::lround(p * static_cast<double>(sorted.size() - 1)))];
}

const BenchRow* BenchRecord::find(const std::string& inputs, Index tokens, const std::string& pass,
                                  const std::string& variant) const {
  for (const BenchRow& r : rows) {
    if (r.inputs == inputs && r.tokens == tokens && r.pass == pass && r.variant == variant) return &r;
  }
  return nullptr;
}

Json bench_json(const BenchRecord& b) {
  Json json{{"schema", 1},
            {"gpu", b.gpu.name},
            {"driver", b.gpu.driver},
            {"cuda_runtime", b.gpu.cuda_runtime},
            {"capability", b.gpu.capability},
            {"multiprocessors", b.gpu.multiprocessors},
            {"clock_hz", b.gpu.clock_hz},
            {"memory_bandwidth", b.gpu.memory_bandwidth},
            {"memory_bytes", b.gpu.memory_bytes},
            {"timestamp", b.run.date},
            {"command", b.run.command},
            {"version", b.run.version},
            {"commit", b.run.commit},
            {"compiler", b.run.compiler},
            {"system", b.run.system},
            {"cpu", b.run.cpu},
            {"seconds", b.run.seconds},
            {"seed", b.run.seed},
            {"vocab", b.vocab},
            {"hidden", b.hidden},
            {"beta", b.beta},
            {"temperature", b.temperature},
            {"tuned", b.tuned},
            {"clock_source", b.clock_source},
            {"clocks", Json::array()},
            {"rows", Json::array()}};
  for (const ClockRow& c : b.clocks) json["clocks"].push_back(to_json(c));
  for (const BenchRow& r : b.rows) json["rows"].push_back(to_json(r));
  return json;
}

BenchRecord parse_bench_json(const std::string& text, const std::string& origin) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema") != 1) throw std::invalid_argument("its schema is not 1");
    BenchRecord b;
    json.at("gpu").get_to(b.gpu.name);
    read(json, "driver", b.gpu.driver);
    read(json, "cuda_runtime", b.gpu.cuda_runtime);
    read(json, "capability", b.gpu.capability);
    read(json, "multiprocessors", b.gpu.multiprocessors);
    read(json, "clock_hz", b.gpu.clock_hz);
    read(json, "memory_bandwidth", b.gpu.memory_bandwidth);
    read(json, "memory_bytes", b.gpu.memory_bytes);
    read(json, "timestamp", b.run.date);
    read(json, "command", b.run.command);
    read(json, "version", b.run.version);
    read(json, "commit", b.run.commit);
    read(json, "compiler", b.run.compiler);
    read(json, "system", b.run.system);
    read(json, "cpu", b.run.cpu);
    read(json, "seconds", b.run.seconds);
    read(json, "seed", b.run.seed);
    json.at("vocab").get_to(b.vocab);
    json.at("hidden").get_to(b.hidden);
    json.at("beta").get_to(b.beta);
    json.at("temperature").get_to(b.temperature);
    read(json, "tuned", b.tuned);
    read(json, "clock_source", b.clock_source);
    for (const Json& c : json.at("clocks")) b.clocks.push_back(clock_from(c));
    for (const Json& r : json.at("rows")) b.rows.push_back(row_from(r));
    return b;
  } catch (const std::exception& error) {
    throw std::invalid_argument(origin + ": this is not a benchmark record: " + error.what());
  }
}

}  // namespace fljsd
