// SPDX-License-Identifier: Apache-2.0
// fljsd reproduce: the published numbers beside what this machine, or the committed record, says.
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/bench/bench.h"
#include "verify/bench/render.h"
#include "verify/commands/commands.h"
#include "verify/report/output_file.h"
#include "verify/report/progress.h"
#include "verify/report/terminal.h"
#include "verify/reproduce/render.h"

namespace fljsd {
namespace {

struct ReproduceOptions {
  std::string measured, json, svg;
  bool committed = false;
};

int run(const ReproduceOptions& options, const std::string& command_line) {
  require_outputs({{"--json", options.json, true}, {"--svg", options.svg}},
                  {{"--measured", options.measured}});
  const std::filesystem::path data = data_folder();
  const auto read_csv = [&](const std::filesystem::path& path) {
    return parse_benchmark_csv(read_data_file(path), path.string());
  };
  const std::vector<BenchmarkDatum> published = read_csv(data / "published" / "liger.csv");
  const std::vector<BenchmarkDatum> peers = read_csv(data / "measured" / "h200" / "peers.csv");

  BenchRecord record;
  const std::string no_gpu = options.measured.empty() && !options.committed ? why_no_gpu() : "";
  const bool measure = options.measured.empty() && !options.committed && no_gpu.empty();
  if (measure) {
    Progress progress;
    BenchRequest request;
    request.inputs = {"uniform"};
    record = run_bench(
        request, [&](const std::string& what) { progress.step(what); },
        [&](const BenchRow& row) { progress.step(bench_line(row)); });
    record.run.command = command_line;
  } else {
    const std::filesystem::path path = options.measured.empty()
                                           ? data / "measured" / "h200" / "benchmark.json"
                                           : std::filesystem::path(options.measured);
    record = parse_bench_json(read_data_file(path), path.string());
  }
  const PublishedComparison comparison = compare(published, peers, record, measure);
  if (!options.svg.empty()) write_text(options.svg, comparison_svg(comparison));
  if (options.json == "-") {
    fmt::print("{}\n", comparison_json(comparison).dump(2));
    return exit_status::fine;
  }
  if (!options.json.empty()) write_text(options.json, comparison_json(comparison).dump(2) + '\n');
  if (!no_gpu.empty())
    fmt::print("{}\n\n", wrapped("Nothing is measured on this machine: " + no_gpu +
                                     " What follows is published data and the committed measurements.",
                                 terminal_width()));
  fmt::print("{}", comparison_text(comparison, terminal_width()));
  return exit_status::fine;
}

}  // namespace

Action setup_reproduce(CLI::App& app) {
  const auto options = std::make_shared<ReproduceOptions>();
  app.footer(
      "With a GPU it measures the stages on the published inputs; without one it shows the committed\n"
      "measurements and says so. docs/reproducing.md tells how the published implementations are measured.");
  const auto measured = app.add_option("--measured", options->measured,
                                       "Take this record of fljsd bench --json instead of measuring");
  app.add_flag("--committed", options->committed, "Take the committed record, also where there is a GPU")
      ->excludes(measured);
  app.add_option("--json", options->json, "Write the comparison to this file as JSON; - prints it");
  app.add_option("--svg", options->svg, "Write the plot of time over tokens to this file");
  return [options](const std::string& command_line) { return run(*options, command_line); };
}

}  // namespace fljsd
