// SPDX-License-Identifier: Apache-2.0
#include "verify/fuzz/state.h"

#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "verify/cases/random.h"
#include "verify/cases/safetensors.h"
#include "verify/fuzz/json.h"
#include "verify/report/output_file.h"

namespace fljsd {
namespace {

constexpr int schema = 2;

}  // namespace

std::filesystem::path state_file(const std::filesystem::path& corpus, const std::string& candidate,
                                 const CampaignOptions& options) {
  const RecipeRange& range = options.range;
  const std::string selection = fmt::format(
      "{}\n{}\n{} {} {} {} {} {} {}\n{} {} {} {} {}\n{}\n{}\n{}", candidate, options.seed, range.max_tokens,
      range.max_hidden, range.max_vocab, range.endpoints, range.mixed_dtypes, range.no_distribution,
      range.awkward_layout, options.long_tokens, options.long_hidden, options.long_vocab, options.long_one_in,
      options.tiles_one_in, fmt::join(options.families, ","), fmt::join(options.properties, ","),
      options.directed_share);
  std::uint64_t hash = 0;
  for (const char c : selection) hash = splitmix64(hash, static_cast<unsigned char>(c));
  return corpus / fmt::format("state-{:016x}.json", hash);
}

std::optional<CampaignState> read_state(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const Json json = Json::parse(text);
    if (json.at("schema") != schema) return std::nullopt;  // of another version: start anew
    CampaignState state;
    state.recipes = json.at("recipes").get<Index>();
    state.cases = json.at("cases").get<Cases>();
    state.coverage = coverage_from(json.at("coverage"));
    state.records = records_from(json.at("records"));
    state.worst_ratio = numbers_from(json.at("worst_ratio"));
    state.worst_property_ratio = numbers_from(json.at("worst_property_ratio"));
    for (const Json& failed : json.at("failed"))
      state.failed.push_back(
          {{failed.at("property").get<std::string>(), failed.at("quantity").get<std::string>(),
            failed.at("manner").get<std::string>()},
           parse_recipe(failed.at("recipe").get<std::string>())});
    return state;
  } catch (const std::exception& error) {
    throw FileError(fmt::format("{} is not the state of a campaign ({}); remove it to start anew.",
                                path.string(), error.what()));
  }
}

void write_state(const std::filesystem::path& path, const CampaignState& state) {
  Json json{{"schema", schema},
            {"recipes", state.recipes},
            {"cases", state.cases},
            {"coverage", coverage_json(state.coverage)},
            {"records", records_json(state.records)},
            {"worst_ratio", numbers_json(state.worst_ratio)},
            {"worst_property_ratio", numbers_json(state.worst_property_ratio)},
            {"failed", Json::array()}};
  for (const auto& [kind, recipe] : state.failed)
    json["failed"].push_back({{"property", kind.property},
                              {"quantity", kind.quantity},
                              {"manner", kind.manner},
                              {"recipe", to_text(recipe)}});
  write_text(path, json.dump(1) + "\n");
}

}  // namespace fljsd
