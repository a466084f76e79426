// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "verify/bench/render.h"

namespace fljsd {

std::string bench_csv(const BenchRecord& b) {
  std::string csv =
      "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,"
      "y_value_50,y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,liger_version\n";
  for (const BenchRow& r : b.rows) {
    const auto line = [&](const char* metric, const char* unit, double p50, double p20, double p80) {
      csv += fmt::format(
          "fused_linear_jsd,fljsd {},{},{},{},BT,B x T,{},{},{},{},"
          "\"{{\"\"H\"\": {}, \"\"V\"\": {}, \"\"inputs\"\": \"\"{}\"\", \"\"beta\"\": {}}}\",{},{},\n",
          r.variant, r.pass, metric, unit, r.tokens, p50, p20, p80, b.hidden, b.vocab, r.inputs, b.beta,
          b.gpu.name, b.run.date);
    };
    line("speed", "ms", r.median(), r.quantile(0.2), r.quantile(0.8));
    const double mebibytes = static_cast<double>(r.workspace_bytes) / (1 << 20);
    line("workspace", "MB", mebibytes, mebibytes, mebibytes);
  }
  return csv;
}

}  // namespace fljsd
