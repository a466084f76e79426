// SPDX-License-Identifier: Apache-2.0
// make_golden FOLDER [NAME...]: makes the golden set, or some cases of it without the manifest.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "verify/tools/golden.h"

int main(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') {
    fmt::print(stderr,
               "Usage: make_golden FOLDER [NAME...]\n\nMakes data/golden's cases, answers and manifest in "
               "FOLDER; with "
               "names, only those cases.\n");
    return 2;
  }
  try {
    fljsd::make_golden(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_golden: {}\n", error.what());
    return 2;
  }
  return 0;
}
