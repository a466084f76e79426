// SPDX-License-Identifier: Apache-2.0
// In place of gpu/ in a build without CUDA.
#include <stdexcept>

#include "verify/bench/bench.h"

namespace fljsd {

std::vector<std::string> bench_inputs() {
  return {"uniform", "normal", "peaked"};
}
std::vector<std::string> bench_stages() {
  return {};
}
std::string why_no_gpu() {
  return "this program was built without the CUDA stages: that takes a CUDA toolkit and -DFLJSD_CUDA=ON.";
}
GpuInfo find_gpu() {
  throw std::runtime_error(why_no_gpu());
}
BenchRecord run_bench(const BenchRequest&, const std::function<void(const std::string&)>&,
                      const std::function<void(const BenchRow&)>&) {
  throw std::runtime_error(why_no_gpu());
}

}  // namespace fljsd
