// SPDX-License-Identifier: Apache-2.0
// Asks a GPU's tensor cores and writes down its raw answers; judges nothing.
//
//   tensor_core_probe OUTDIR
//
//   probes.csv     fixed probes: the question's bits and the answer of each instruction
//   random.bin     answers to random products, fp32 bits
//   families.bin   logits of the input families
//   cublaslt.bin   a sample of what cuBLASLt's algorithms return
//   index.csv      what the .bin files hold: file, label, first word, words, fingerprint of all answers
//
// The operands are not written: fixed_probes.h, random_products.h and family_products.h make them again.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>

#include <cuda_runtime.h>

#include "verify/probe/family_products.h"
#include "verify/probe/fixed_probes.h"
#include "verify/probe/lt_products.h"
#include "verify/probe/probe_plan.h"
#include "verify/probe/random_products.h"

namespace fljsd::probe {
namespace {

std::string hex(std::uint64_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

class Writer {
 public:
  explicit Writer(std::string folder) : folder_(std::move(folder)), index_(folder_ + "/index.csv") {
    index_ << "file,label,first,words,fingerprint\n";
  }

  // Appends words to a file; the fingerprint is that of `all`, of which `kept` may be a sample.
  void add(const std::string& file, const std::string& label, const std::vector<std::uint32_t>& all,
           const std::vector<std::uint32_t>& kept) {
    std::FILE* const out = std::fopen((folder_ + '/' + file).c_str(), "ab");
    if (out == nullptr) throw std::runtime_error("cannot write " + folder_ + '/' + file + '.');
    std::fseek(out, 0, SEEK_END);
    const long first = std::ftell(out) / 4;
    const std::size_t written = std::fwrite(kept.data(), 4, kept.size(), out);
    if (std::fclose(out) != 0 || written != kept.size())
      throw std::runtime_error("cannot write " + folder_ + '/' + file + '.');
    index_ << file << ',' << label << ',' << first << ',' << kept.size() << ','
           << hex(fingerprint(all.data(), static_cast<Index>(all.size())), 16) << std::endl;
  }
  void add(const std::string& file, const std::string& label, const std::vector<std::uint32_t>& all) {
    add(file, label, all, all);
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::ofstream index_;
};

void ask_fixed_probes(const std::string& folder) {
  std::ofstream out(folder + "/probes.csv");
  out << "dtype,group,a,b,c,wgmma,wgmma_without_c,mma\n";
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::vector<Probe> probes = fixed_probes(dtype);
    Products products = probe_products(dtype, probes);
    const auto wgmma = probe_answers(multiply_on_device(Instruction::wgmma_n8, products), probes.size());
    const auto mma = probe_answers(multiply_on_device(Instruction::mma, products), probes.size());
    products.c.clear();
    const auto without_c = probe_answers(multiply_on_device(Instruction::wgmma_n8, products), probes.size());
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const Probe& p = probes[i];
      std::string a, b;
      for (int k = 0; k < 16; ++k) {
        a += hex(p.a[static_cast<std::size_t>(k)], 4);
        b += hex(p.b[static_cast<std::size_t>(k)], 4);
      }
      out << fljsd::name(dtype) << ',' << p.group << ',' << a << ',' << b << ',' << hex(p.c, 8) << ','
          << hex(wgmma[i], 8) << ',' << hex(without_c[i], 8) << ',' << hex(mma[i], 8) << '\n';
    }
    std::printf("%s: %zu fixed probes\n", fljsd::name(dtype), probes.size());
  }
  out.flush();
  if (!out) throw std::runtime_error("cannot write " + folder + "/probes.csv.");
}

void ask_random_products(Writer& writer) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const RandomPlan& plan : random_plans)
      for (const Kind kind : kinds()) {
        const Products products = random_products(dtype, kind, plan.seed, plan.tiles, plan.depth);
        for (const Instruction instruction : {Instruction::wgmma_n8, Instruction::mma})
          writer.add("random.bin", random_label(dtype, plan, kind, instruction),
                     multiply_on_device(instruction, products));
      }
  std::printf("random products written\n");
}

void ask_families(Writer& writer) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Family& family : families()) {
      const Products products = family_product(dtype, family, family_seed);
      std::vector<std::uint32_t> first;
      for (const Instruction instruction :
           {Instruction::wgmma_n8, Instruction::wgmma_n160, Instruction::mma}) {
        if (dtype == DType::f16 && instruction == Instruction::wgmma_n160) continue;
        const auto answer = multiply_on_device(instruction, products);
        const std::string label = family_label(dtype, family, instruction);
        // What repeats the first instruction's bits need not be kept twice.
        if (first.empty()) first = answer;
        writer.add(
            "families.bin", label, answer,
            instruction != Instruction::wgmma_n8 && answer == first ? std::vector<std::uint32_t>{} : answer);
      }
    }
  std::printf("families written\n");
}

void ask_cublaslt(Writer& writer) {
  std::printf("cuBLASLt %s\n", cublaslt_version().c_str());
  for (const LtPlan& plan : lt_plans) {
    const Products products = random_gemm(plan.dtype, plan.kind, plan.seed, plan.rows, plan.cols, plan.depth);
    const auto ours = multiply_on_device(Instruction::wgmma_n8, whole_instructions(products));
    int number = 0;
    for (const LtAnswer& answer : multiply_with_cublaslt(products, plan.algorithms, plan.alignment)) {
      const std::string label = lt_label(plan) + "/" + std::to_string(number++) + '/' + answer.algorithm;
      std::size_t different = 0;
      for (std::size_t i = 0; i < answer.d.size(); ++i) different += answer.d[i] != ours[i];
      std::printf("%s: %zu of %zu differ from wgmma in ascending order\n", label.c_str(), different,
                  answer.d.size());
      std::fflush(stdout);
      writer.add("cublaslt.bin", label, answer.d, sample(answer.d, plan.rows, plan.cols));
    }
  }
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
    Writer writer(argv[1]);
    ask_random_products(writer);
    ask_families(writer);
    ask_cublaslt(writer);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tensor_core_probe: %s\n", e.what());
    return 2;
  }
  return 0;
}
