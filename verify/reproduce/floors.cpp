// SPDX-License-Identifier: Apache-2.0
#include "verify/reproduce/floors.h"

namespace fljsd {
namespace {

// Longest names first: "NVIDIA H100 PCIe" begins with "NVIDIA H100".
constexpr struct {
  const char* name;
  double tflops, terabytes;
  const char* source;
} table[] = {
    {"NVIDIA H100 80GB HBM3", 989.4, 3.35, "H100 SXM datasheet"},
    {"NVIDIA H100 PCIe", 756, 2.0, "H100 PCIe datasheet"},
    {"NVIDIA H100 NVL", 835.5, 3.9, "H100 NVL datasheet"},
    {"NVIDIA H100", 989.4, 3.35, "H100 SXM datasheet"},
    {"NVIDIA H200 NVL", 835.5, 4.8, "H200 NVL datasheet"},
    {"NVIDIA H200", 989.4, 4.8, "H200 SXM datasheet"},
    {"NVIDIA A100-SXM4-80GB", 312, 2.039, "A100 80GB SXM datasheet"},
    {"NVIDIA A100 80GB PCIe", 312, 1.935, "A100 80GB PCIe datasheet"},
    {"NVIDIA A100-SXM4-40GB", 312, 1.555, "A100 40GB SXM datasheet"},
};

}  // namespace

std::optional<GpuRates> datasheet_rates(const std::string& gpu_name) {
  for (const auto& entry : table) {
    if (gpu_name.rfind(entry.name, 0) == 0)
      return GpuRates{entry.name, entry.tflops * 1e12, entry.terabytes * 1e12, entry.source};
  }
  return std::nullopt;
}

Floors floors(const GpuRates& rates, Pass pass, Index tokens, Index vocab, Index hidden) {
  const auto t = static_cast<double>(tokens), v = static_cast<double>(vocab), h = static_cast<double>(hidden);
  const bool full = pass == Pass::full;
  const double operations = (full ? 8 : 4) * t * v * h;
  const double bytes = 2 * (2 * v * h + 2 * t * h) + 4 * t + (full ? 2 * (v * h + t * h) : 0);
  return {1e3 * operations / rates.flops, 1e3 * bytes / rates.bandwidth};
}

}  // namespace fljsd
