// SPDX-License-Identifier: Apache-2.0
// How long the truth takes on this machine: float64 logits beside OpenBLAS, the published workload in full,
// one certified token, exact dot products.
//
//   ./fljsd bench-cpu [--benchmark_filter=REGEX] [--benchmark_out=FILE --benchmark_out_format=csv]
#include <chrono>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <cblas.h>

#include "reference/enclosure.h"
#include "reference/exact_dot.h"
#include "reference/linear_jsd.h"
#include "reference/linear_jsd_detail.h"
#include "reference/parallel.h"
#include "verify/bench/cpu/memory.h"
#include "verify/cases/families.h"

namespace fljsd::bench {
namespace {

constexpr Index published_vocab = 128256, published_hidden = 4096;

// The inputs of the published benchmark: uniform k/256 in bf16.
Case published_case(Index tokens, Index vocab) {
  CaseSpec spec;
  spec.family = find_family("published").number;
  spec.tokens = tokens;
  spec.student_hidden = published_hidden;
  spec.vocab = vocab;
  return make_case(spec);
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

// Names what the times were taken on, in every row of the output.
void say_machine(benchmark::State& state) {
  std::string simd = "without AVX-512";
#ifdef __AVX512F__
  simd = "AVX-512";
#endif
  state.SetLabel(processor() + ", " + std::to_string(thread_count()) + " threads, " + simd);
}

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Float64 logits of both models, decoding bf16 on the way, against dgemm on matrices that are float64
// already. The two take turns, so that both see the same clock. The time reported is ours.
void LogitsBesideDgemm(benchmark::State& state) {
  const Index tokens = state.range(0), vocab = state.range(1), hidden = published_hidden;
  const Case c = published_case(tokens, vocab);
  const Problem problem = c.problem();
  std::vector<Index> all(static_cast<std::size_t>(tokens));
  std::iota(all.begin(), all.end(), Index{0});
  RowMajorMatrix<double> x(tokens, vocab), y(tokens, vocab), product(tokens, vocab);
  RowMajorMatrix<double> input(tokens, hidden), weight(vocab, hidden);
  for (Index t = 0; t < tokens; ++t) problem.student_input.row(t, 0, hidden, input.row(t).data());
  for (Index v = 0; v < vocab; ++v) problem.student_weight.row(v, 0, hidden, weight.row(v).data());

  const auto size = [](Index n) { return static_cast<blasint>(n); };
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    const double seconds = seconds_of([&] {
      detail::float64_logits(problem, c.options, all, detail::default_blocks(tokens, vocab), x, y);
    });
    ours += seconds;
    state.SetIterationTime(seconds);
    theirs += seconds_of([&] {
      for (int model = 0; model < 2; ++model)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(tokens), size(vocab), size(hidden), 1,
                    input.data(), size(hidden), weight.data(), size(hidden), 0, product.data(), size(vocab));
    });
    benchmark::DoNotOptimize(product.data());
  }
  // hidden + 1 roundings each at most; two orders of summation may differ by twice that.
  const double u = 0x1p-53, allowed = 2 * (static_cast<double>(hidden) + 1) * u;
  if (!((x - product).cwiseAbs().maxCoeff() <= allowed * product.maxCoeff()))  // all terms are positive
    state.SkipWithError("the two products differ");
  const double flop = 4.0 * static_cast<double>(tokens * vocab) * static_cast<double>(hidden) *
                      static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = flop / ours / 1e9;
  state.counters["dgemm GFLOP/s"] = flop / theirs / 1e9;
  state.counters["of dgemm"] = theirs / ours;
  say_machine(state);
}
BENCHMARK(LogitsBesideDgemm)
    ->ArgNames({"tokens", "vocab"})
    ->Args({256, 16032})
    ->Args({512, 16032})
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->MinTime(10);

// The loss of the published workload, all of it, and what memory that takes beside the inputs.
void PublishedTruth(benchmark::State& state) {
  const Case c = published_case(state.range(0), published_vocab);
  const Problem problem = c.problem();
  Result result;
  reset_peak_memory();
  const double before = resident_bytes();
  for (auto _ : state) result = linear_jsd<double>(problem, c.options);
  state.counters["GiB beside inputs"] = (peak_resident_bytes() - before) / 0x1p30;
  state.counters["loss"] = *result.loss;
  say_machine(state);
}
BENCHMARK(PublishedTruth)
    ->ArgName("tokens")
    ->Arg(1024)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

// A certified enclosure of one token's loss at the published size.
void OneCertifiedToken(benchmark::State& state) {
  const Case c = published_case(1, published_vocab);
  const Problem problem = c.problem();
  std::vector<Enclosure> losses;
  for (auto _ : state) losses = certify_token_losses(problem, c.options, {0});
  if (!losses[0].rounds_to) return state.SkipWithError("inconclusive");
  state.counters["loss"] = *losses[0].rounds_to;
  say_machine(state);
}
BENCHMARK(OneCertifiedToken)->Unit(benchmark::kSecond)->Iterations(3)->MeasureProcessCPUTime()->UseRealTime();

// One exact dot product of bf16 vectors that are taken apart already; one thread.
void ExactDot(benchmark::State& state) {
  const Case c = published_case(1, 1);
  const Problem problem = c.problem();
  ExactVector a, b;
  a.assign_row(problem.student_input, 0);
  b.assign_row(problem.student_weight, 0);
  for (auto _ : state) benchmark::DoNotOptimize(exact_dot(a, b));
  state.counters["products/s"] = benchmark::Counter(static_cast<double>(published_hidden),
                                                    benchmark::Counter::kIsIterationInvariantRate);
  say_machine(state);
}
BENCHMARK(ExactDot);

}  // namespace
}  // namespace fljsd::bench

BENCHMARK_MAIN();
