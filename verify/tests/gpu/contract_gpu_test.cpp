// SPDX-License-Identifier: Apache-2.0
// What the interface promises besides the numbers: NaN stays where it belongs, streams do not meet, calls are
// captured into graphs, results repeat, bad arguments are refused, sizes past 2^31 work.
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "verify/tests/gpu/gpu_case.h"

namespace fljsd::testing {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

class Contract : public ::testing::TestWithParam<std::string> {};

// 0·NaN = NaN: an ignored token with NaN or infinity poisons the weight gradient through a product with
// zeros.
TEST_P(Contract, IgnoredTokensMayHoldAnything) {
  for (const Reduction reduction : {Reduction::batchmean, Reduction::none}) {
    Recipe r;
    r.tokens = 23, r.vocab = 300, r.ignored = 0.4;
    r.options.reduction = reduction;
    HostCase host = make_case(r);
    const StageResult clean = DeviceCase(host, GetParam(), true).run();
    for (Index t = 0; t < r.tokens; ++t) {
      if ((*host.labels)[static_cast<std::size_t>(t)] != r.options.ignore_index) continue;
      for (Index h = 0; h < r.student_hidden; ++h) {
        host.student_input.set(t, h, h % 2 == 0 ? nan : infinity);
        host.teacher_input.set(t, h, -infinity);
      }
    }
    DeviceCase device(host, GetParam(), true);
    EXPECT_TRUE(clean.same_bits(device.run())) << device.name();
  }
}

// A weight that is NaN leaves no token a distribution, but a token that does not count has none to lose: its
// row of the input gradient is 0, not 0·NaN.
TEST_P(Contract, IgnoredRowsAreZeroWhateverTheWeightsHold) {
  Recipe r;
  r.tokens = 12, r.vocab = 40, r.ignored = 0.5;
  HostCase host = make_case(r);
  host.student_weight.set(5, 3, nan);
  DeviceCase device(host, GetParam(), true);
  const StageResult result = device.run();
  for (Index t = 0; t < r.tokens; ++t) {
    const bool ignored = (*host.labels)[static_cast<std::size_t>(t)] == r.options.ignore_index;
    for (Index h = 0; h < r.student_hidden; ++h) {
      const double got = result.input_grad.at(t, h);
      EXPECT_TRUE(ignored ? got == 0 : std::isnan(got)) << device.name() << ": token " << t;
    }
  }
}

// A token without a distribution: NaN in its loss, its row of the input gradient and every row of the weight
// gradient below valid_vocab; nowhere else.
TEST_P(Contract, NanStaysWhereItBelongs) {
  for (const double beta : {0.5, 0.0, 1.0}) {
    for (const bool in_teacher : {false, true}) {
      for (const double value : {nan, infinity}) {
        Recipe r;
        r.tokens = 8, r.vocab = 130, r.options.beta = beta, r.options.valid_vocab = 120;
        HostCase host = make_case(r);
        (in_teacher ? host.teacher_input : host.student_input).set(3, 2, value);
        DeviceCase device(host, GetParam(), true);
        const StageResult result = device.run();
        for (Index t = 0; t < r.tokens; ++t) {
          EXPECT_EQ(std::isnan(result.token_loss[static_cast<std::size_t>(t)]), t == 3) << device.name();
          for (Index h = 0; h < r.student_hidden; ++h) {
            EXPECT_EQ(std::isnan(result.input_grad.at(t, h)), t == 3) << device.name();
          }
        }
        EXPECT_TRUE(std::isnan(result.loss)) << device.name();
        for (Index v = 0; v < r.vocab; ++v) {
          for (Index h = 0; h < r.student_hidden; ++h) {
            EXPECT_EQ(std::isnan(result.weight_grad.at(v, h)), v < 120) << device.name();
            if (v >= 120) {
              EXPECT_EQ(result.weight_grad.at(v, h), 0) << device.name();
            }
          }
          EXPECT_EQ(std::isnan(result.bias_grad[static_cast<std::size_t>(v)]), v < 120) << device.name();
        }
      }
    }
  }
}

// A bias of nothing but −inf leaves no distribution; −inf in the first tile only must not.
TEST_P(Contract, MinusInfinityEverywhereAndInTheFirstTile) {
  Recipe r;
  r.tokens = 4, r.vocab = 600, r.student_bias = DType::f32, r.teacher_bias = DType::f32;
  HostCase host = make_case(r);
  for (Index v = 0; v < 256; ++v) host.student_bias->set(0, v, -infinity);
  const Configure small_tiles = [](fljsd_config& c) { c.chunk_vocab = 128, c.gradient_chunk_vocab = 128; };
  expect_close(DeviceCase(host, GetParam(), true, small_tiles).run(), host, GetParam());
  for (Index v = 0; v < 256; ++v) host.teacher_bias->set(0, v, -infinity);
  expect_close(DeviceCase(host, GetParam(), true, small_tiles).run(), host, GetParam());
  for (Index v = 0; v < 600; ++v) host.student_bias->set(0, v, -infinity);
  for (const float loss : DeviceCase(host, GetParam(), false, small_tiles).run().token_loss) {
    EXPECT_TRUE(std::isnan(loss));
  }
}

// Maxima that rise from tile to tile by tens and hundreds of nats: sums that are not rescaled overflow or
// lose their phase.
TEST_P(Contract, RisingMaxima) {
  for (const double beta : {0.5, 0.0, 1.0}) {
    Recipe r;
    r.tokens = 6, r.vocab = 1024, r.student_bias = DType::f32, r.teacher_bias = DType::f32,
    r.options.beta = beta;
    HostCase host = make_case(r);
    for (Index v = 0; v < r.vocab; ++v) {
      host.student_bias->set(0, v, static_cast<double>(v / 128) * 37 + host.student_bias->at(0, v));
      host.teacher_bias->set(0, v, static_cast<double>((v + 64) / 128) * 37 + host.teacher_bias->at(0, v));
    }
    const Configure small_tiles = [](fljsd_config& c) { c.chunk_vocab = 192, c.gradient_chunk_vocab = 192; };
    expect_close(DeviceCase(host, GetParam(), true, small_tiles).run(), host, GetParam());
  }
}

// One plan, two streams at once: state in the plan, or work on another stream, mixes the results.
TEST_P(Contract, TwoStreamsAtOnce) {
  Recipe a;
  a.tokens = 300, a.vocab = 5000, a.student_hidden = a.teacher_hidden = 64, a.ignored = 0.1;
  Recipe b = a;
  b.seed = 2;
  DeviceCase first(make_case(a), GetParam(), true), second(make_case(b), GetParam(), true);
  second.share_plan(first);
  const StageResult want_first = first.run(), want_second = second.run();
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int round = 0; round < 5; ++round) {
    std::thread other([&] { second.enqueue(streams[1]); });
    first.enqueue(streams[0]);
    other.join();
    EXPECT_TRUE(want_first.same_bits(first.collect()));
    EXPECT_TRUE(want_second.same_bits(second.collect()));
  }
  for (cudaStream_t stream : streams) check_cuda(cudaStreamDestroy(stream));
}

// A call that allocates or synchronises cannot be captured.
TEST_P(Contract, CapturesIntoAGraph) {
  Recipe r;
  r.tokens = 40, r.vocab = 700, r.ignored = 0.1;
  DeviceCase device(make_case(r), GetParam(), true);
  const StageResult want = device.run();
  cudaStream_t stream;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  device.enqueue(stream);
  cudaGraph_t graph;
  check_cuda(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  check_cuda(cudaGraphInstantiate(&executable, graph, 0));
  check_cuda(cudaGraphLaunch(executable, stream));
  EXPECT_TRUE(want.same_bits(device.collect()));
  check_cuda(cudaGraphExecDestroy(executable));
  check_cuda(cudaGraphDestroy(graph));
  check_cuda(cudaStreamDestroy(stream));
}

// Tuning changes algorithms, not results beyond rounding; grid products are exact with any algorithm.
TEST_P(Contract, Tuning) {
  Recipe r;
  r.tokens = 200, r.vocab = 3000, r.student_hidden = r.teacher_hidden = 64;
  const HostCase host = make_case(r);
  DeviceCase device(host, GetParam(), true);
  const fljsd_tensors t = device.tensors();
  ASSERT_EQ(fljsd_plan_tune(device.plan(), FLJSD_FORWARD_BACKWARD, &t, device.workspace().get(),
                            device.workspace().size(), nullptr),
            FLJSD_OK)
      << fljsd_last_error();
  EXPECT_NE(std::string(fljsd_plan_describe(device.plan())).find(" ms"), std::string::npos);
  expect_close(device.run(), host, GetParam());
}

// A product that only the last, shorter chunk needs, and whose candidates nobody measured: 72 of 200 tokens.
TEST(ChunkedTokens, TuningMeasuresTheLastChunkToo) {
  Recipe r;
  r.tokens = 200, r.vocab = 3000, r.student_hidden = r.teacher_hidden = 64;
  DeviceCase device(make_case(r), "chunked-tokens", true, [](fljsd_config& c) { c.chunk_tokens = 128; });
  const fljsd_tensors t = device.tensors();
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    ASSERT_EQ(fljsd_plan_tune(device.plan(), pass, &t, device.workspace().get(), device.workspace().size(),
                              nullptr),
              FLJSD_OK)
        << fljsd_last_error();
  }
  std::istringstream description(fljsd_plan_describe(device.plan()));
  int products = 0;
  for (std::string line; std::getline(description, line);) {
    if (line.find("candidate") == std::string::npos) continue;
    ++products;
    EXPECT_NE(line.find(" ms"), std::string::npos) << line;
  }
  EXPECT_GE(products, 2 * 4 + 2);  // logits of two lengths and models in both passes; gradients
}

// Zero tokens: loss 0, gradients 0.
TEST_P(Contract, EmptyBatch) {
  Recipe r;
  r.tokens = 0, r.vocab = 10, r.pad = 2;
  const HostCase host = make_case(r);
  DeviceCase device(host, GetParam(), true);
  const StageResult result = device.run();
  EXPECT_EQ(result.loss, 0);
  for (Index v = 0; v < r.vocab; ++v) {
    EXPECT_EQ(result.bias_grad[static_cast<std::size_t>(v)], 0);
    for (Index h = 0; h < r.student_hidden; ++h) EXPECT_EQ(result.weight_grad.at(v, h), 0);
  }
}

// A budget is kept, or refused with a sentence.
TEST_P(Contract, MemoryBudget) {
  Recipe r;
  r.tokens = 500, r.vocab = 8000, r.student_hidden = r.teacher_hidden = 32;
  const HostCase host = make_case(r);
  for (const std::int64_t budget : {std::int64_t{64} << 20, std::int64_t{44} << 20, std::int64_t{1} << 20}) {
    try {
      DeviceCase device(host, GetParam(), true, [&](fljsd_config& c) { c.memory_budget = budget; });
      EXPECT_LE(device.workspace().size(), static_cast<std::size_t>(budget));
      expect_close(device.run(), host, GetParam());
    } catch (const std::runtime_error& refusal) {
      EXPECT_NE(std::string(refusal.what()).find("memory_budget"), std::string::npos) << refusal.what();
      if (budget == std::int64_t{44} << 20) {
        EXPECT_EQ(GetParam().find("chunked"), std::string::npos) << refusal.what();
      }
    }
  }
}

TEST_P(Contract, RefusesBadCalls) {
  Recipe r;
  DeviceCase device(make_case(r), GetParam(), true);
  const fljsd_tensors good = device.tensors();
  const DeviceBuffer& w = device.workspace();
  const auto call = [&](const fljsd_tensors& t, void* workspace, std::uint64_t bytes) {
    return fljsd_forward_backward(device.plan(), &t, workspace, bytes, nullptr);
  };
  EXPECT_EQ(call(good, w.get(), w.size() - 1), FLJSD_WORKSPACE_TOO_SMALL);
  EXPECT_EQ(call(good, w.get() + 8, w.size()), FLJSD_MISALIGNED);
  EXPECT_EQ(call(good, nullptr, w.size()), FLJSD_INVALID_ARGUMENT);
  fljsd_tensors bad = good;
  bad.teacher_weight = nullptr;
  EXPECT_EQ(call(bad, w.get(), w.size()), FLJSD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fljsd_last_error()).find("teacher_weight"), std::string::npos);
  bad = good;
  bad.student_input = static_cast<const std::byte*>(good.student_input) + 1;
  EXPECT_EQ(call(bad, w.get(), w.size()), FLJSD_MISALIGNED);
  EXPECT_EQ(call(good, w.get(), w.size()), FLJSD_OK);
}

// 20000 x 128256 = 2.6e9 logits: 32-bit offsets wrap. Grid inputs, so that stages agree with the reference on
// any token.
TEST_P(Contract, SizesPast32Bits) {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total));
  if (free < std::size_t{60} << 30) GTEST_SKIP() << "needs 60 GB of device memory";
  Recipe r;
  r.tokens = 20000, r.vocab = 128256, r.student_hidden = r.teacher_hidden = 16;
  const HostCase host = make_case(r);
  DeviceCase device(host, GetParam(), true);
  const StageResult result = device.run();
  // The reference on the first token, on the one in whose row the offset passes 2^31 and the next one, on the
  // one where bytes of fp32 pass 2^32, and on the last two.
  constexpr Index past_elements = (Index{1} << 31) / 128256, past_bytes = (Index{1} << 30) / 128256;
  const std::vector<Index> chosen = {0, past_bytes, past_elements, past_elements + 1, 19998, 19999};
  HostCase few = host;
  few.recipe.tokens = static_cast<Index>(chosen.size());
  const auto keep = [&](HostMatrix& m) {
    const auto row_bytes = static_cast<std::size_t>(m.ld) * size_of(m.dtype);
    std::vector<std::byte> kept;
    for (const Index t : chosen) {
      const auto first =
          m.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(t) * row_bytes);
      kept.insert(kept.end(), first, first + static_cast<std::ptrdiff_t>(row_bytes));
    }
    m.bytes = kept;
    m.rows = few.recipe.tokens;
  };
  keep(few.student_input);
  keep(few.teacher_input);
  StageResult some;
  for (const Index t : chosen) some.token_loss.push_back(result.token_loss[static_cast<std::size_t>(t)]);
  few.recipe.options.reduction = Reduction::none;
  expect_close(some, few, GetParam());
  // Σ_v of each column of the weight gradient is 0, because Σ_v dD/dx_v = 0: a missing or doubled chunk
  // shows. Terms are rounded to bf16 twice (dlogits and result), so the sum is within 2^-7 of Σ_v |dW|.
  for (Index h = 0; h < 16; ++h) {
    double sum = 0, magnitude = 0;
    for (Index v = 0; v < r.vocab; ++v) {
      sum += result.weight_grad.at(v, h);
      magnitude += std::abs(result.weight_grad.at(v, h));
    }
    EXPECT_GT(magnitude, 0);
    EXPECT_LE(std::abs(sum), 0x1p-7 * magnitude);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Contract, ::testing::ValuesIn(real_stages()), stage_test_name);

// The baseline never passes for a result.
TEST(Baseline, ReturnsNan) {
  Recipe r;
  DeviceCase device(make_case(r), "gemm", true);
  const StageResult result = device.run();
  EXPECT_TRUE(std::isnan(result.loss));
  for (const float loss : result.token_loss) EXPECT_TRUE(std::isnan(loss));
}

}  // namespace
}  // namespace fljsd::testing
