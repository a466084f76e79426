// SPDX-License-Identifier: Apache-2.0
// Asks a GPU's tensor cores and writes down what they answer; judges nothing.
//
//   tensor_core_probe OUTDIR
//
//   probes.csv    fixed probes: the question's bits, and the answers' bits
//   random.csv    random products: fingerprints of the answers to a few tiles at a time
//   families.csv  logits of the input families: fingerprints of a few tokens at a time
//   cublaslt.csv  for each algorithm of cuBLASLt, how many of its answers differ from wgmma's in ascending
//   order
//
// The operands of the last two are not written: random_products.h and family_products.h make them again.
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime.h>

#include "verify/probe/answers.h"
#include "verify/probe/plan.h"

namespace fljsd::probe {
namespace {

class Table {
 public:
  Table(const std::string& folder, const std::string& file, const char* header)
      : path_(folder + '/' + file), file_(std::fopen(path_.c_str(), "w")) {
    if (file_ == nullptr) throw std::runtime_error("cannot write " + path_ + '.');
    line(header);
  }
  ~Table() {
    if (file_ != nullptr) std::fclose(file_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void line(std::string_view text) {
    std::fprintf(file_, "%.*s\n", static_cast<int>(text.size()), text.data());
  }
  // What could not be written is an error, not a shorter table.
  void close() {
    const bool failed = std::ferror(file_) != 0;
    if (std::fclose(std::exchange(file_, nullptr)) != 0 || failed)
      throw std::runtime_error("cannot write " + path_ + '.');
  }

 private:
  std::string path_;
  std::FILE* file_;
};

void ask_fixed_probes(const std::string& folder) {
  // Answers that repeat wgmma's are left out. Without c: where c is a zero.
  Table table(folder, "probes.csv", "dtype,group,question,c,wgmma,wgmma_without_c,mma");
  const auto other = [](std::uint32_t answer, std::uint32_t than) {
    return answer == than ? std::string() : hex(answer, 8);
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::vector<Probe> probes = fixed_probes(dtype);
    Products products = probe_products(dtype, probes);
    const auto wgmma = probe_answers(multiply_on_device(Instruction::wgmma_n8, products), probes.size());
    const auto mma = probe_answers(multiply_on_device(Instruction::mma, products), probes.size());
    products.c.clear();
    const auto without_c = probe_answers(multiply_on_device(Instruction::wgmma_n8, products), probes.size());
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const bool zero = (probes[i].c & 0x7fffffff) == 0;
      table.line(std::string(fljsd::name(dtype)) + ',' + probes[i].group + ',' + to_text(probes[i]) + ',' +
                 hex(probes[i].c, 8) + ',' + hex(wgmma[i], 8) + ',' +
                 (zero ? other(without_c[i], wgmma[i]) : "") + ',' + other(mma[i], wgmma[i]));
    }
    std::printf("%s: %zu fixed probes\n", fljsd::name(dtype), probes.size());
  }
  table.close();
}

void ask_random_products(const std::string& folder) {
  Table table(folder, "random.csv", "product,first_tile,wgmma,mma");
  for (const RandomPlan& plan : random_plans()) {
    const Products products = make_products(plan);
    const auto wgmma = fingerprints(products, multiply_on_device(Instruction::wgmma_n8, products));
    const auto mma = fingerprints(products, multiply_on_device(Instruction::mma, products));
    for (std::size_t i = 0; i < wgmma.size(); ++i)
      table.line(label(plan) + ',' + std::to_string(i * tiles_per_fingerprint) + ',' + hex(wgmma[i], 16) +
                 ',' + hex(mma[i], 16));
  }
  table.close();
  std::printf("random products written\n");
}

void ask_families(const std::string& folder) {
  Table table(folder, "families.csv", "product,first_token,wgmma_n8,wgmma_n160,mma");
  for (const FamilyPlan& plan : family_plans()) {
    const Products products = make_products(plan);
    const auto n8 = fingerprints(products, multiply_on_device(Instruction::wgmma_n8, products));
    const auto n160 = plan.dtype == DType::bf16
                          ? fingerprints(products, multiply_on_device(Instruction::wgmma_n160, products))
                          : std::vector<std::uint64_t>{};
    const auto mma = fingerprints(products, multiply_on_device(Instruction::mma, products));
    for (std::size_t i = 0; i < n8.size(); ++i)
      table.line(label(plan) + ',' + std::to_string(i * tokens_per_fingerprint) + ',' + hex(n8[i], 16) + ',' +
                 (n160.empty() ? "" : hex(n160[i], 16)) + ',' + hex(mma[i], 16));
  }
  table.close();
  std::printf("families written\n");
}

}  // namespace
}  // namespace fljsd::probe

int main(int argc, char** argv) {
  using namespace fljsd::probe;
  if (argc != 2) {
    std::fprintf(stderr, "usage: tensor_core_probe OUTDIR\n");
    return 2;
  }
  try {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
      std::fprintf(stderr, "tensor_core_probe: there is no CUDA device.\n");
      return 2;
    }
    int driver = 0;
    cudaDriverGetVersion(&driver);
    std::printf("%s, compute capability %d.%d, driver's CUDA %d\n", properties.name, properties.major,
                properties.minor, driver);
    if (properties.major != 9) {
      std::fprintf(stderr, "tensor_core_probe: wgmma needs compute capability 9.0, this device has %d.%d.\n",
                   properties.major, properties.minor);
      return 2;
    }
    ask_fixed_probes(argv[1]);
    ask_random_products(argv[1]);
    ask_families(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tensor_core_probe: %s\n", e.what());
    return 2;
  }
  return 0;
}
