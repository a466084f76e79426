// SPDX-License-Identifier: Apache-2.0
// What a subcommand is, and what all of them share.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace fljsd {

namespace exit_status {
inline constexpr int fine = 0;
inline constexpr int finding = 1;    // a budget is broken
inline constexpr int bad_usage = 2;  // bad usage or bad input
}  // namespace exit_status

// Bad usage that the option parser cannot see by itself. what() is one sentence.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Runs the subcommand with the options that were parsed; returns the exit status. Bad input is thrown.
// `command_line` is what was typed, for records.
using Action = std::function<int(const std::string& command_line)>;

struct Command {
  const char* name;
  const char* summary;
  // Declares the subcommand's options on its own parser and returns what to run after parsing.
  Action (*setup)(CLI::App& app);
};

// Every subcommand, in the order in which help shows them. The one place where a subcommand is made known.
const std::vector<Command>& commands();

// Option values that are checked before they are converted, so that an error can say what is allowed.
CLI::Validator whole_number(long long least);
CLI::Validator real_number(double least, double most);
CLI::Validator one_of(const std::string& kind, const std::vector<std::string>& names);

}  // namespace fljsd
