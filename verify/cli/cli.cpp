// SPDX-License-Identifier: Apache-2.0
#include "verify/cli/cli.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "verify/cli/build_info.h"
#include "verify/cli/command.h"
#include "verify/report/suggest.h"
#include "verify/report/terminal.h"

namespace fljsd {
namespace {

// One sentence on standard error, whatever the library or the system made of it.
int complain(std::string sentence) {
  for (char& c : sentence)
    if (c == '\n') c = ' ';
  while (!sentence.empty() && sentence.back() == ' ') sentence.pop_back();
  if (sentence.empty() || (sentence.back() != '.' && sentence.back() != '?')) sentence += '.';
  fmt::print(stderr, "fljsd: {}\n", sentence);
  return exit_status::bad_usage;
}

// Option names as they are typed: "--json", "-h".
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool looks_like_option(const std::string& argument) {
  if (argument.size() < 2 || argument[0] != '-') return false;
  const char second = argument[1];
  return second == '-' ? argument.size() > 2 : (second < '0' || second > '9') && second != '.';
}

// The parser would first complain about a required option that the mistyped one was meant to be.
void refuse_unknown_options(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::vector<std::string> names = option_names(app);
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    if (!looks_like_option(argument)) continue;
    const std::string typed = argument.substr(0, argument.find('='));
    if (std::find(names.begin(), names.end(), typed) != names.end()) continue;
    const std::string command = app.get_name().empty() ? "fljsd" : "fljsd " + app.get_name();
    if (const auto nearest = nearest_name(typed, names))
      throw UsageError(fmt::format("{} has no option {}; did you mean {}?", command, typed, *nearest));
    throw UsageError(fmt::format("{} has no option {}; {} --help lists them.", command, typed, command));
  }
}

// The parser does not wrap: descriptions are broken to fit beside its column of names.
void format_help(CLI::App& app) {
  constexpr int names_column = 27;
  app.get_formatter()->column_width(names_column);
  app.get_formatter()->label("REQUIRED", "(required)");
  for (CLI::Option* option : app.get_options())
    option->description(wrapped(option->get_description(), 79 - names_column));
}

std::string version_text() {
  const BuildInfo& build = build_info();
  return fmt::format("fljsd {} ({}, {})\n", build.version,
                     build.commit.empty() ? "commit unknown" : "commit " + build.commit, build.compiler);
}

int no_such_command(const std::string& typed) {
  // The entry script has two commands of its own.
  std::vector<std::string> names = {"test", "build"};
  for (const Command& command : commands()) names.insert(names.begin(), command.name);
  if (const auto nearest = nearest_name(typed, names))
    return complain(fmt::format("there is no command '{}'; did you mean '{}'?", typed, *nearest));
  return complain(fmt::format("there is no command '{}'; fljsd --help lists them.", typed));
}

// What the parser calls "--tokens: text" or "CASE is required", as a sentence about the command.
std::string parse_error_text(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  const std::string command = "fljsd " + app.get_name();
  if (dynamic_cast<const CLI::RequiredError*>(&error))
    return fmt::format("{}; {} --help explains it.", text, command);
  if (dynamic_cast<const CLI::ExtrasError*>(&error))
    return fmt::format("{} takes no argument '{}'.", command, text.substr(text.rfind(": ") + 2));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    if (text.find("At Most") != text.npos)
      return fmt::format("{} may be given only once.", text.substr(0, text.find(':')));
    if (text.find("required") != text.npos)
      return fmt::format("{} needs a value.", text.substr(0, text.find(':')));
    return text;
  }
  // "--tokens takes ...", but "--dtype: there is no ..."
  if (dynamic_cast<const CLI::ValidationError*>(&error))
    if (const std::size_t colon = text.find(": takes "); colon != text.npos) text.erase(colon, 1);
  return text;
}

int run_subcommand(const Command& command, const std::vector<std::string>& arguments) {
  CLI::App app(command.summary, command.name);
  const Action action = command.setup(app);
  format_help(app);
  try {
    refuse_unknown_options(app, arguments);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return exit_status::fine;
  } catch (const CLI::ParseError& error) {
    return complain(parse_error_text(app, error));
  }
  return action(fmt::format("fljsd {} {}", command.name, fmt::join(arguments, " ")));
}

void print_help() {
  fmt::print(
      "Trustworthy numerics of fused linear + generalized Jensen-Shannon divergence.\n\n"
      "Usage: fljsd COMMAND [ARGUMENTS]\n\nCommands:\n");
  for (const Command& command : commands())
    fmt::print("  {:<11}{}\n", command.name, wrapped(command.summary, 67, 13));
  fmt::print(
      "\n  fljsd COMMAND --help explains a command, fljsd --version names this build.\n"
      "  Exit status: 0 fine, 1 a finding, 2 bad usage or bad input.\n");
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    print_help();
    return exit_status::bad_usage;
  }
  const std::string& first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help") {
    print_help();
    return exit_status::fine;
  }
  if (first == "--version") {
    fmt::print("{}", version_text());
    return exit_status::fine;
  }
  if (looks_like_option(first))
    return complain(
        fmt::format("there is no option {} before the command; fljsd --help lists the commands.", first));
  for (const Command& command : commands())
    if (first == command.name) return run_subcommand(command, {arguments.begin() + 1, arguments.end()});
  return no_such_command(first);
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  int status = exit_status::bad_usage;
  try {
    status = dispatch({argv + std::min(argc, 1), argv + argc});
  } catch (const std::bad_alloc&) {
    return complain("there is not enough memory for this.");
  } catch (const std::exception& error) {
    return complain(error.what());
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return complain(
        fmt::format("the results cannot be written to standard output: {}.", std::strerror(errno)));
  return status;
}

}  // namespace fljsd
