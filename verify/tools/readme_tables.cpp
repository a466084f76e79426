// SPDX-License-Identifier: Apache-2.0
// readme_tables DOCUMENT...: writes tables anew from data/ where a document has their markers, and the plot
// beside the data.
#include <cstdio>

#include "verify/report/output_file.h"
#include "verify/reproduce/render.h"

int main(int argc, char** argv) {
  using namespace fljsd;
  if (argc < 2) {
    std::fputs("Usage: readme_tables DOCUMENT...\n", stderr);
    return 2;
  }
  try {
    const std::filesystem::path measured = data_folder() / "measured" / "h200";
    const auto csv = [](const std::filesystem::path& path) {
      return parse_benchmark_csv(read_data_file(path), path.string());
    };
    const BenchRecord record =
        parse_bench_json(read_data_file(measured / "benchmark.json"), "benchmark.json");
    for (int i = 1; i < argc; ++i) write_text(argv[i], with_tables(read_data_file(argv[i]), data_folder()));
    write_text(measured / "scaling.svg",
               comparison_svg(compare(csv(data_folder() / "published" / "liger.csv"),
                                      csv(measured / "peers.csv"), record, false)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
