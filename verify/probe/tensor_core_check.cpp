// SPDX-License-Identifier: Apache-2.0
// Holds the CPU's model of a tensor core (reference/tensor_core.h) against a GPU, bit for bit, on far more
// products than a repository can keep answers of.
//
//   tensor_core_check OUTDIR [seed]
//
//   checked.csv     what, instruction or algorithm, answers, mismatches, seconds of the model
//   cublaslt.csv    for each algorithm of cuBLASLt, the order of summation under which the model predicts its
//   answers mismatches.csv  the first few of each: what, row, column, the GPU's bits, the model's bits
//
// Exit status: 0 without mismatch in what the model claims to predict, 1 otherwise, 2 if it could not run.
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

#include <cuda_runtime.h>

#include "cuda/gemm.h"
#include "reference/parallel.h"
#include "reference/rounding/tensor_core_products.h"
#include "verify/probe/lt_order.h"
#include "verify/probe/lt_products.h"
#include "verify/probe/plan.h"

namespace fljsd::probe {
namespace {

using Bits = std::vector<std::uint32_t>;

class Book {
 public:
  explicit Book(const std::string& folder)
      : checked_(std::fopen((folder + "/checked.csv").c_str(), "w")),
        mismatches_(std::fopen((folder + "/mismatches.csv").c_str(), "w")) {
    if (checked_ == nullptr || mismatches_ == nullptr)
      throw std::runtime_error("cannot write to " + folder + '.');
    std::fprintf(checked_, "what,how,answers,mismatches,model_seconds\n");
    std::fprintf(mismatches_, "what,how,index,gpu,model\n");
  }
  ~Book() {
    std::fclose(checked_);
    std::fclose(mismatches_);
  }
  Book(const Book&) = delete;
  Book& operator=(const Book&) = delete;

  void compare(const std::string& what, const std::string& how, const Bits& gpu, const Bits& model,
               double seconds) {
    std::size_t different = 0;
    for (std::size_t i = 0; i < gpu.size(); ++i) {
      if (gpu[i] == model[i]) continue;
      if (different++ < 8)
        std::fprintf(mismatches_, "%s,%s,%zu,%08x,%08x\n", what.c_str(), how.c_str(), i, gpu[i], model[i]);
    }
    std::fprintf(checked_, "%s,%s,%zu,%zu,%.2f\n", what.c_str(), how.c_str(), gpu.size(), different, seconds);
    std::fflush(checked_);
    std::fflush(mismatches_);
    answers += gpu.size();
    mismatches += different;
  }

  std::size_t answers = 0, mismatches = 0;

 private:
  std::FILE *checked_, *mismatches_;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Bits predict_tiles(const Products& p) {
  Bits d(static_cast<std::size_t>(p.batch * p.rows * p.cols));
  parallel_for(p.batch * p.rows, [&](Index row) {
    for (Index col = 0; col < p.cols; ++col) {
      const Index i = row * p.cols + col;
      const std::uint16_t* const b = p.b.data() + (row / p.rows * p.cols + col) * p.depth;
      const float c = p.c.empty() ? 0 : std::bit_cast<float>(p.c[static_cast<std::size_t>(i)]);
      d[static_cast<std::size_t>(i)] = std::bit_cast<std::uint32_t>(
          tensor_core_dot(hopper_tensor_core, p.dtype, p.a.data() + row * p.depth, b, p.depth, c));
    }
  });
  return d;
}

Bits predict_product(const Products& p) {
  const MatrixView input{p.dtype, p.a.data(), p.rows, p.depth, p.depth};
  const MatrixView weight{p.dtype, p.b.data(), p.cols, p.depth, p.depth};
  std::vector<Index> tokens(static_cast<std::size_t>(p.rows));
  std::iota(tokens.begin(), tokens.end(), Index{0});
  const std::vector<float> logits = tensor_core_products(hopper_tensor_core, input, tokens, weight, p.cols);
  Bits bits;
  for (const float logit : logits) bits.push_back(std::bit_cast<std::uint32_t>(logit));
  return bits;
}

void check_tiles(Book& book, std::uint64_t seed) {
  struct Size {
    Index tiles, depth;
  };
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Size size : {Size{1000, 16}, Size{200, 64}, Size{64, 4096}})
      for (const Kind kind : kinds()) {
        const Products p = random_products(dtype, kind, seed, size.tiles, size.depth);
        const auto begin = std::chrono::steady_clock::now();
        const Bits model = predict_tiles(p);
        const double seconds = seconds_since(begin);
        const std::string what = std::string(fljsd::name(dtype)) + "/k" + std::to_string(size.depth) + '/' +
                                 std::string(name(kind));
        for (const Instruction instruction : {Instruction::wgmma_n8, Instruction::mma})
          book.compare(what, name(instruction), multiply_on_device(instruction, p), model, seconds);
      }
}

class DeviceCopy {
 public:
  DeviceCopy(const void* host, std::size_t bytes) : DeviceCopy(bytes) {
    if (cudaMemcpy(data, host, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
      throw std::runtime_error("cannot copy to the device.");
  }
  explicit DeviceCopy(std::size_t bytes) {
    if (cudaMalloc(&data, bytes) != cudaSuccess) throw std::runtime_error("cannot allocate device memory.");
  }
  ~DeviceCopy() { cudaFree(data); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;
  void* data = nullptr;
};

// Candidates in the order in which they are tried.
std::vector<SumOrder> orders(int split_k) {
  std::vector<SumOrder> all;
  for (const Index first_tile : {0, 64, 32, 16})
    for (const Index step : {64, 32, 16}) all.push_back({split_k, step, first_tile});
  return all;
}

// Every so many answers, for all of them where they are few.
std::size_t count_differences(const Products& p, const Bits& d, const SumOrder& order, Index every) {
  std::atomic<std::size_t> different{0};
  parallel_for((p.rows * p.cols + every - 1) / every, [&](Index j) {
    const Index i = j * every;
    const float model = ordered_dot(order, hopper_tensor_core, p.dtype, p.a.data() + i / p.cols * p.depth,
                                    p.b.data() + i % p.cols * p.depth, p.depth);
    different += std::bit_cast<std::uint32_t>(model) != d[static_cast<std::size_t>(i)];
  });
  return different;
}

// The order under which the model predicts a sample of the answers; null if none does.
std::optional<SumOrder> find_order(const Products& p, const Bits& d, int split_k) {
  for (const SumOrder& order : orders(split_k))
    if (count_differences(p, d, order, std::max<Index>(1, p.rows * p.cols / 251)) == 0) return order;
  return std::nullopt;
}

Bits predict_in_order(const Products& p, const SumOrder& order) {
  Bits d(static_cast<std::size_t>(p.rows * p.cols));
  parallel_for(p.rows, [&](Index row) {
    for (Index col = 0; col < p.cols; ++col)
      d[static_cast<std::size_t>(row * p.cols + col)] = std::bit_cast<std::uint32_t>(
          ordered_dot(order, hopper_tensor_core, p.dtype, p.a.data() + row * p.depth,
                      p.b.data() + col * p.depth, p.depth));
  });
  return d;
}

// The logits as the CUDA stages compute them, by the default algorithm and by the one that measuring chooses.
void check_stage(Book& book, const std::string& what, const Products& p, const Bits& model, double seconds) {
  const DeviceCopy a(p.a.data(), p.a.size() * 2), b(p.b.data(), p.b.size() * 2);
  const std::size_t size = static_cast<std::size_t>(p.rows * p.cols);
  const DeviceCopy d(size * 4), workspace(static_cast<std::size_t>(cuda::Gemm::workspace_size));
  cuda::GemmSpec spec;
  spec.what = "student logits";
  spec.m = p.rows;
  spec.n = p.cols;
  spec.k = p.depth;
  spec.transpose_b = true;
  spec.lda = spec.ldb = p.depth;
  spec.ldc = p.cols;
  spec.in = p.dtype == DType::bf16 ? FLJSD_BF16 : FLJSD_F16;
  cuda::Gemm gemm(std::make_shared<cuda::LtHandle>(), spec);
  const float one = 1, zero = 0;
  const cuda::Gemm::Operands operands{a.data, b.data, d.data, &one, &zero, workspace.data};
  for (const bool tuned : {false, true}) {
    if (tuned) gemm.tune(nullptr, operands);
    cudaMemset(d.data, 0xa5, size * 4);
    gemm.run(nullptr, operands);
    Bits answer(size);
    if (cudaMemcpy(answer.data(), d.data, size * 4, cudaMemcpyDeviceToHost) != cudaSuccess)
      throw std::runtime_error("cannot copy the logits.");
    const std::string how = tuned ? "stage's GEMM tuned" : "stage's GEMM";
    std::optional<SumOrder> order = find_order(p, answer, 1);
    for (int split_k = 2; split_k <= 8 && !order; ++split_k) order = find_order(p, answer, split_k);
    if (!order || order->slices == 1) {
      book.compare(what, how, answer, model, seconds);
    } else {
      book.compare(what, how + ' ' + to_text(*order), answer, predict_in_order(p, *order), seconds);
    }
    std::printf("%s: %s\n", what.c_str(), gemm.describe().c_str());
  }
}

void check_families(Book& book, std::uint64_t seed) {
  constexpr Index tokens = 256, hidden = 4096;
  const auto check_format = [&](DType dtype, Index vocab, Instruction instruction) {
    for (const Family& family : families()) {
      const Products p = family_product(dtype, family, seed, tokens, vocab, hidden);
      const auto begin = std::chrono::steady_clock::now();
      const Bits model = predict_product(p);
      const double seconds = seconds_since(begin);
      const std::string what = std::string("logits/") + fljsd::name(dtype) + '/' + std::string(family.name);
      book.compare(what, name(instruction), multiply_on_device(instruction, p), model, seconds);
      check_stage(book, what, p, model, seconds);
    }
  };
  check_format(DType::bf16, 5120, Instruction::wgmma_n160);
  check_format(DType::f16, 1280, Instruction::wgmma_n8);
}

// For each algorithm the first order that explains a sample, and how many of all answers it does not predict.
void check_cublaslt(const std::string& folder) {
  std::FILE* const table = std::fopen((folder + "/cublaslt.csv").c_str(), "w");
  if (table == nullptr) throw std::runtime_error("cannot write to " + folder + '.');
  std::fprintf(table, "cublaslt,product,alignment,number,algorithm,order,answers,mismatches\n");
  for (const LtPlan& plan : lt_plans()) {
    const Products p = random_gemm(plan.dtype, plan.kind, plan.seed, plan.rows, plan.cols, plan.depth);
    int number = 0;
    for (const LtAnswer& answer : multiply_with_cublaslt(p, plan.algorithms, plan.alignment)) {
      std::string order_text = "none found";
      std::size_t different = answer.d.size();
      Index compared = p.rows * p.cols;
      if (!answer.d.empty()) {
        const Index size = p.rows * p.cols;
        if (const auto order = find_order(p, answer.d, std::max(1, answer.split_k))) {
          // 2^16 answers at most: the model of these orders is the slow one.
          const Index every = std::max<Index>(1, size >> 16);
          order_text = to_text(*order);
          compared = (size + every - 1) / every;
          different = count_differences(p, answer.d, *order, every);
        }
      }
      std::fprintf(table, "%s,%s,%d,%d,%s,%s,%td,%zu\n", cublaslt_version().c_str(), label(plan).c_str(),
                   plan.alignment, number++, answer.algorithm.c_str(), order_text.c_str(), compared,
                   different);
      std::fflush(table);
    }
  }
  std::fclose(table);
}

}  // namespace
}  // namespace fljsd::probe

int main(int argc, char** argv) {
  using namespace fljsd::probe;
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: tensor_core_check OUTDIR [seed]\n");
    return 2;
  }
  try {
    Book book(argv[1]);
    const std::uint64_t seed = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 20;
    check_families(book, seed);
    check_tiles(book, seed);
    check_cublaslt(argv[1]);
    std::printf("%zu answers, %zu mismatches\n", book.answers, book.mismatches);
    return book.mismatches == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tensor_core_check: %s\n", e.what());
    return 2;
  }
}
