// SPDX-License-Identifier: Apache-2.0
// Published and measured data, floors, the comparison, and that what the repository shows follows from its
// data.
#include <cmath>
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "verify/bench/bench.h"
#include "verify/bench/peers.h"
#include "verify/bench/render.h"
#include "verify/reproduce/render.h"

namespace fljsd {
namespace {

const std::filesystem::path root = FLJSD_SOURCE_DIR;
const std::filesystem::path measured = root / "data" / "measured" / "h200";

std::vector<BenchmarkDatum> csv(const std::filesystem::path& path) {
  return parse_benchmark_csv(read_data_file(path), path.string());
}
BenchRecord committed_record() {
  return parse_bench_json(read_data_file(measured / "benchmark.json"), "benchmark.json");
}
PublishedComparison committed_comparison() {
  return compare(csv(root / "data" / "published" / "liger.csv"), csv(measured / "peers.csv"),
                 committed_record(), false);
}

// Catches: a floor that leaves out a tensor or counts a product twice. The published floor is 632.3 us; two
// products of 1024 x 4096 by 4096 x 128256 are 2.15e12 operations.
TEST(Floors, AgreeWithThePublishedOne) {
  const auto h100 = datasheet_rates("NVIDIA H100 80GB HBM3");
  ASSERT_TRUE(h100);
  const Floors f = floors(*h100, Pass::forward, 1024, 128256, 4096);
  EXPECT_NEAR(f.bandwidth_ms, 0.6323, 0.00005);  // to its last digit
  EXPECT_DOUBLE_EQ(f.arithmetic_ms, 1e3 * 4.0 * 1024 * 128256 * 4096 / 989.4e12);
  EXPECT_DOUBLE_EQ(floors(*h100, Pass::full, 1024, 128256, 4096).arithmetic_ms, 2 * f.arithmetic_ms);
  EXPECT_EQ(f.binding_ms(), f.arithmetic_ms);
  EXPECT_EQ(datasheet_rates("NVIDIA H100 PCIe")->source, "H100 PCIe datasheet");  // not the SXM part's
  EXPECT_FALSE(datasheet_rates("Some other GPU"));
}

// Catches: quoted commas that shift columns, memory read as time, other kernels let in.
TEST(BenchmarkCsv, ReadsThePublishedTable) {
  const std::vector<BenchmarkDatum> data = csv(root / "data" / "published" / "liger.csv");
  EXPECT_EQ(data.size(), 24u);
  const BenchmarkDatum& first = data.front();
  EXPECT_EQ(first.provider, "liger");
  EXPECT_EQ(first.tokens, 1024);
  EXPECT_NEAR(first.median, 110.02, 0.005);
  EXPECT_EQ(first.gpu, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(first.low, first.high);
}

TEST(BenchmarkCsv, RefusesWhatItCannotRead) {
  const std::string header =
      "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,"
      "y_value_50,y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,liger_version\n";
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse_benchmark_csv(text, "FILE");
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(header), "");
  EXPECT_NE(refusal("").find("FILE: there is no column kernel_name"), std::string::npos);
  EXPECT_NE(refusal(header + "a,b\n").find("line 2 has 2 fields"), std::string::npos);
  EXPECT_NE(refusal(header + "fused_linear_jsd,torch,forward,speed,ms,BT,B x T,many,1,1,1,,g,t,v\n")
                .find("line 2 has a value that is not a number"),
            std::string::npos);
}

// Catches: a field that is written and not read, or read under another name.
TEST(BenchRecord, JsonReadsBack) {
  BenchRecord b;
  b.run.date = "2026-11-30T09:00:00Z";
  b.run.command = "fljsd bench";
  b.gpu = {"GPU", "1.2", 13000, 90, 132, 1.98e9, 4.8e12, 150};
  b.vocab = 5, b.hidden = 3, b.beta = 0.25, b.temperature = 2, b.tuned = false, b.clock_source = "NVML";
  b.clocks.push_back({"uniform", "full", 7, 3, 1500, 690, 55});
  BenchRow row;
  row.inputs = "uniform", row.tokens = 7, row.pass = "full", row.variant = "unfused";
  row.baseline = "G4", row.milliseconds = {3, 1, 2}, row.median_ratio = 1.25, row.median_ratio_g6 = 0.8;
  row.workspace_bytes = 99, row.device_bytes = 100, row.loss = 0.5;
  row.input_grad_error = std::nan(""), row.outputs_repeat = false, row.plan = "plan";
  b.rows.push_back(row);
  const std::string text = bench_json(b).dump();
  const BenchRecord back = parse_bench_json(text, "FILE");
  EXPECT_EQ(bench_json(back).dump(), text);
  EXPECT_EQ(back.rows[0].median(), 2);
  EXPECT_FALSE(back.rows[0].loss_error);
  EXPECT_TRUE(std::isnan(*back.rows[0].input_grad_error));
  EXPECT_THROW(parse_bench_json("{}", "FILE"), std::invalid_argument);
  EXPECT_THROW(parse_bench_json("", "FILE"), std::invalid_argument);
}

// Catches: gradients of a stage that computes its logits twice compared with four products, or those of one
// that does not with six; and a record's own word overruled.
TEST(BenchRecord, KnowsTheProductsToCompareWith) {
  BenchRow row;
  row.pass = "forward", row.variant = "chunked-vocab", row.median_ratio = 2, row.median_ratio_g6 = 1.5;
  EXPECT_EQ(baseline_of(row), "G2");
  row.pass = "full";
  EXPECT_EQ(baseline_of(row), "G6");
  row.variant = "chunked-tokens:4096";
  EXPECT_EQ(baseline_of(row), "G4");
  row.variant = "fused", row.plan = "forward: fused sweep\nforward and backward: chunked-vocab\n";
  EXPECT_EQ(baseline_of(row), "G6");
  row.plan = "forward: fused sweep\nforward and backward: unfused\n";
  EXPECT_EQ(baseline_of(row), "G4");
  row.baseline = "G4", row.milliseconds = {1};
  EXPECT_EQ(row.ratio(), 2);
  row.baseline = "G6";
  EXPECT_EQ(row.ratio(), 1.5);
  BenchRecord b;
  b.rows.push_back(row);
  EXPECT_EQ(parse_bench_json(bench_json(b).dump(), "FILE").rows[0].baseline, "G6");
}

// Catches: losses that differ between runs, errors past the promise, or NaN, going by without a word.
TEST(BenchRecord, FindingsAreSaid) {
  BenchRecord b;
  BenchRow row;
  row.variant = "unfused", row.milliseconds = {1}, row.largest_token_error = 1e-6;
  b.rows.push_back(row);
  EXPECT_TRUE(bench_findings(b).empty());
  b.rows[0].largest_token_error = std::nan("");
  EXPECT_EQ(bench_findings(b).size(), 1u);
  b.rows[0].largest_token_error = 6e-6;
  EXPECT_EQ(bench_findings(b).size(), 1u);
  b.rows[0].outputs_repeat = false;
  EXPECT_EQ(bench_findings(b).size(), 2u);
  b.rows[0].variant = "unfused-bf16-logits", b.rows[0].outputs_repeat = true;  // whose class allows more
  EXPECT_TRUE(bench_findings(b).empty());
  b.rows[0].weight_grad_error = std::nan("");  // which no class allows
  EXPECT_EQ(bench_findings(b).size(), 1u);
}

// Catches: a peer compared with the products of another pass or size, or with samples of other rounds.
TEST(Peers, RatiosAreToTheProductsOfTheSameRound) {
  const auto rows = parse_peers(R"([
    {"variant": "torch-matmul", "tokens": 4, "pass": "forward", "milliseconds": [1, 2, 4], "memory_bytes": 1},
    {"variant": "torch", "tokens": 4, "pass": "forward", "milliseconds": [2, 6, 16], "memory_bytes": 7}])");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].median_ratio, 3);
  EXPECT_EQ(rows[1].device_bytes, 7);
  EXPECT_THROW(parse_peers(R"([{"variant": "torch", "tokens": 4, "pass": "full", "milliseconds": [2],
                               "memory_bytes": 7}])"),
               std::runtime_error);
}

// Catches: columns that Liger-Kernel's tools, or our own reader, do not find.
TEST(BenchRecord, CsvHasLigersColumns) {
  const BenchRecord record = committed_record();
  const std::vector<BenchmarkDatum> data = parse_benchmark_csv(bench_csv(record), "CSV");
  ASSERT_EQ(data.size(), 2 * record.rows.size());
  EXPECT_EQ(data[0].provider, "fljsd gemm");
  EXPECT_DOUBLE_EQ(data[0].median, record.rows[0].median());
}

// Catches: a verdict on times of different GPUs, or one within the tolerance called a failure.
TEST(PublishedComparison, VerdictsNeedTheSameGpu) {
  BenchmarkDatum published{
      "fused_linear_jsd",    "torch", "forward", "speed", "ms", 1024, 10, 9, 11, "NVIDIA H100 80GB HBM3",
      "2024-10-09 12:00:00", "0.3.1"};
  BenchRecord record = committed_record();
  BenchmarkDatum peer = published;
  const auto verdict = [&] { return compare({published}, {peer}, record, false).published[0].verdict; };
  EXPECT_EQ(compare({published}, {}, record, false).published[0].verdict, Reproduction::not_measured);
  peer.median = 10.9;
  EXPECT_EQ(verdict(), Reproduction::reproduced);
  peer.median = 11.2;
  EXPECT_EQ(verdict(), Reproduction::not_reproduced);
  peer.median = std::nan("");
  EXPECT_EQ(verdict(), Reproduction::not_reproduced);
  peer.gpu = "NVIDIA H200";
  EXPECT_EQ(verdict(), Reproduction::different_hardware);
}

// Catches: memory that was not measured in the record's own run of a peer, shown as 0 MiB.
TEST(PublishedComparison, MemoryThatWasNotMeasuredIsAbsent) {
  const BenchmarkDatum published{
      "fused_linear_jsd",    "torch", "forward", "memory", "MB", 1024, 10, 9, 11, "NVIDIA H100 80GB HBM3",
      "2024-10-09 12:00:00", "0.3.1"};
  BenchRecord record = committed_record();
  BenchRow peer;
  peer.variant = "torch", peer.inputs = "uniform", peer.pass = "forward", peer.tokens = 1024;
  peer.milliseconds = {1};
  ASSERT_TRUE(peer.is_peer());
  record.rows.push_back(peer);
  EXPECT_FALSE(compare({published}, {}, record, true).published[0].measured);
  record.rows.back().device_bytes = 3 << 20;
  EXPECT_EQ(compare({published}, {}, record, true).published[0].measured, 3);
}

// Catches: a published row or a measured stage that is dropped.
TEST(PublishedComparison, HoldsEveryRow) {
  const PublishedComparison c = committed_comparison();
  EXPECT_EQ(c.published.size(), 24u);
  EXPECT_FALSE(c.stages.empty());
  const std::string text = comparison_text(c, 100);
  for (const PublishedRow& r : c.published) {
    EXPECT_FALSE(r.explanation.empty());
    EXPECT_EQ(r.floor.has_value(), r.metric == "speed");
  }
  for (const StageRow& r : c.stages) EXPECT_NE(text.find(r.stage), std::string::npos);
  EXPECT_EQ(comparison_json(c)["published"].size(), c.published.size());
}

// Catches: a pass whose errors are left out of the table, and NaN that a comparison loses.
TEST(Accuracy, IsThatOfTheWorsePassAndKeepsNaN) {
  BenchRecord b;
  b.vocab = 128256, b.hidden = 4096, b.gpu.name = "a GPU", b.run.date = "2026-11-30";
  BenchRow forward, full;
  forward.inputs = full.inputs = "uniform", forward.variant = full.variant = "fused";
  forward.tokens = full.tokens = 1024, forward.pass = "forward", full.pass = "full";
  forward.largest_token_error = 3e-7, full.largest_token_error = 2e-7;
  full.input_grad_error = 2e-3, full.weight_grad_error = 4e-3;
  b.rows = {forward, full};
  EXPECT_NE(readme_accuracy(b).find("| `fused` | 3.0e-7; 0.0020, 0.0040 |\n"), std::string::npos)
      << readme_accuracy(b);
  for (BenchRow& row : b.rows) {
    const BenchRow right = row;
    row.largest_token_error = std::numeric_limits<double>::quiet_NaN();
    EXPECT_NE(readme_accuracy(b).find("| `fused` | nan;"), std::string::npos) << readme_accuracy(b);
    row = right;
  }
}

TEST(Sections, AreReplacedBetweenTheirMarkers) {
  const std::string document = "a\n<!-- begin:x -->\nold\n<!-- end:x -->\nb\n";
  EXPECT_EQ(replace_section(document, "x", "new\n"), "a\n<!-- begin:x -->\nnew\n<!-- end:x -->\nb\n");
  EXPECT_THROW(replace_section(document, "y", ""), std::invalid_argument);
  EXPECT_THROW(replace_section(document + document, "x", ""), std::invalid_argument);
}

// Catches: a document or a plot that no longer says what the data say. `readme_tables README.md
// docs/kernels.md` mends all.
TEST(Documents, FollowFromTheData) {
  for (const char* name : {"README.md", "docs/kernels.md"}) {
    const std::string document = read_data_file(root / name);
    EXPECT_EQ(with_tables(document, root / "data"), document) << name;
  }
  EXPECT_EQ(comparison_svg(committed_comparison()), read_data_file(measured / "scaling.svg"));
}

}  // namespace
}  // namespace fljsd
