// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/plan_cache.h"

#include <algorithm>

#include "verify/candidates/cuda/stage_call.h"

namespace fljsd {
namespace {

// Cases of one examination have few configurations: those of the case, of its layouts, of what a property
// makes of it.
constexpr std::size_t most_plans = 12;

// The configuration's bytes, with the stage's name in the place of a pointer to it.
std::string key_of(fljsd_config config) {
  std::string key = config.stage;
  config.stage = nullptr;
  key += '\0';
  key.append(reinterpret_cast<const char*>(&config), sizeof config);
  return key;
}

}  // namespace

PlanPointer make_plan(const fljsd_config& config) {
  fljsd_plan* plan = nullptr;
  check_status(fljsd_plan_create(&config, &plan));
  return {plan, fljsd_plan_destroy};
}

PlanPointer PlanCache::get(const fljsd_config& config) {
  const std::string key = key_of(config);
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) {
    std::rotate(entries_.begin(), found, found + 1);
  } else {
    entries_.push_front({key, make_plan(config)});
    if (entries_.size() > most_plans) entries_.pop_back();
  }
  return entries_.front().plan;
}

}  // namespace fljsd
