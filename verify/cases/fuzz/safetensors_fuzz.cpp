// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the readers of case and result files on arbitrary bytes. Exceptions other than FileError,
// sanitizer reports and broken promises of check_bytes() end the run with the input that caused them.
#include "verify/cases/fuzz/check_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fljsd::check_bytes(std::as_bytes(std::span(data, size)));
  return 0;
}
