// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>

#include "cuda/failure.h"

namespace fljsd::cuda {
namespace {

cudaDataType_t cuda_type(fljsd_dtype dtype) {
  return dtype == FLJSD_BF16 ? CUDA_R_16BF : dtype == FLJSD_F16 ? CUDA_R_16F : CUDA_R_32F;
}

template <class Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, Value value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value), "describing a product");
}
template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "describing a product");
}

int config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  int value = -1;
  std::size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : -1;
}

constexpr const char* measuring = "measuring a product";

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), measuring); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

bool is_aligned(const void* pointer, std::uintptr_t to) {
  return reinterpret_cast<std::uintptr_t>(pointer) % to == 0;
}

}  // namespace

LtHandle::LtHandle() {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<cublasLtContext>> of_device;
  int device = -1;
  check(cudaGetDevice(&device), "asking for the current device");
  const std::lock_guard lock(mutex);
  std::weak_ptr<cublasLtContext>& known = of_device[device];
  handle_ = known.lock();
  if (handle_) return;
  cublasLtHandle_t made = nullptr;
  check(cublasLtCreate(&made), "creating a cuBLASLt handle");
  handle_.reset(made, cublasLtDestroy);
  known = handle_;
}

// cuBLASLt is column-major: our row-major C = op(A)·op(B) is its Cᵀ = op(B)ᵀ·op(A)ᵀ, where a row-major matrix
// read column-major is already its own transpose. So B comes first, and each operand keeps its transpose
// flag.
struct Gemm::Descriptors {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;

  explicit Descriptors(const GemmSpec& s) {
    const auto layout = [](cublasLtMatrixLayout_t& out, fljsd_dtype dtype, Index rows, Index columns,
                           Index ld) {
      check(cublasLtMatrixLayoutCreate(&out, cuda_type(dtype), static_cast<std::uint64_t>(columns),
                                       static_cast<std::uint64_t>(rows), ld),
            "describing a matrix");
    };
    check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    set(product, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(product, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(product, CUBLASLT_MATMUL_DESC_POINTER_MODE,
        s.scalars == Scalars::device ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST);
    layout(first, s.in, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb);
    layout(second, s.in, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda);
    layout(result, s.out, s.m, s.n, s.ldc);
  }
  ~Descriptors() {
    cublasLtMatrixLayoutDestroy(result);
    cublasLtMatrixLayoutDestroy(second);
    cublasLtMatrixLayoutDestroy(first);
    cublasLtMatmulDescDestroy(product);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
};

Gemm::Gemm(std::shared_ptr<const LtHandle> lt, const GemmSpec& spec)
    : lt_(std::move(lt)), spec_(spec), descriptors_(std::make_shared<Descriptors>(spec)) {
  for (std::size_t which = 0; which < candidates_.size(); ++which) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "describing a product");
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, cublasStatus_t (*)(cublasLtMatmulPreference_t)>
        owner(preference, cublasLtMatmulPreferenceDestroy);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_size});
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto in = static_cast<std::uint32_t>(which == 0 ? 16 : size_of(spec.in));
    const auto out = static_cast<std::uint32_t>(which == 0 ? 16 : size_of(spec.out));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, in);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, in);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out);
    std::array<cublasLtMatmulHeuristicResult_t, 8> found;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        lt_->get(), descriptors_->product, descriptors_->first, descriptors_->second, descriptors_->result,
        descriptors_->result, preference, static_cast<int>(found.size()), found.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED) {
      check(status, "looking for an algorithm");
    }
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; ++i) {
      if (found[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS) {
        candidates_[which].algorithms.push_back(found[static_cast<std::size_t>(i)].algo);
      }
    }
  }
  if (candidates_[1].algorithms.empty()) {
    fail(FLJSD_UNSUPPORTED, "cuBLASLt has no algorithm for the ", spec_.what, ", a product of ", spec_.m,
         " x ", spec_.k, " by ", spec_.k, " x ", spec_.n, " in ", name(spec_.in), " with leading dimensions ",
         spec_.lda, ", ", spec_.ldb, " and ", spec_.ldc, ".");
  }
  if (candidates_[0].algorithms.empty()) candidates_[0] = candidates_[1];
}

std::size_t Gemm::candidates_for(const Operands& o) {
  return is_aligned(o.a, 16) && is_aligned(o.b, 16) && is_aligned(o.c, 16) ? 0 : 1;
}

cublasStatus_t Gemm::launch(cudaStream_t stream, const Operands& o,
                            const cublasLtMatmulAlgo_t& algorithm) const {
  const Descriptors& d = *descriptors_;
  return cublasLtMatmul(lt_->get(), d.product, o.alpha, o.b, d.first, o.a, d.second, o.beta, o.c, d.result,
                        o.c, d.result, &algorithm, o.workspace, static_cast<std::size_t>(workspace_size),
                        stream);
}

void Gemm::check_launch(cublasStatus_t status) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  check(status, (std::string("multiplying for the ") + spec_.what).c_str());
}

void Gemm::run(cudaStream_t stream, const Operands& operands) const {
  const Candidates& candidates = candidates_[candidates_for(operands)];
  check_launch(launch(stream, operands, candidates.algorithms[candidates.chosen]));
}

void Gemm::tune(cudaStream_t stream, const Operands& operands) {
  Candidates& candidates = candidates_[candidates_for(operands)];
  const Event start, stop;
  // Candidates take turns, so that a clock that falls as the GPU warms up is the same for all; the best of
  // each counts. The heuristics do return algorithms that then refuse: those stay infinitely slow.
  constexpr int rounds = 4;
  cublasStatus_t refused = CUBLAS_STATUS_SUCCESS;
  std::vector<float> best(candidates.algorithms.size(), std::numeric_limits<float>::infinity());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < best.size(); ++i) {
      check(cudaEventRecord(start.get(), stream), measuring);
      const cublasStatus_t status = launch(stream, operands, candidates.algorithms[i]);
      if (status != CUBLAS_STATUS_SUCCESS) {
        refused = status;
        cudaGetLastError();  // a launch that was refused is no error of the call
        continue;
      }
      check(cudaEventRecord(stop.get(), stream), measuring);
      check(cudaEventSynchronize(stop.get()), measuring);
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()), measuring);
      if (round > 0) best[i] = std::min(best[i], milliseconds);  // the first round loads code
    }
  }
  const auto fastest = std::min_element(best.begin(), best.end());
  if (*fastest == std::numeric_limits<float>::infinity()) check_launch(refused);
  candidates.chosen = static_cast<std::size_t>(fastest - best.begin());
  candidates.milliseconds = *fastest;
}

std::string Gemm::describe() const {
  std::ostringstream text;
  text << spec_.what << ": " << spec_.m << " x " << spec_.n << " x " << spec_.k << ' ' << name(spec_.in)
       << " -> " << name(spec_.out);
  for (std::size_t which = 0; which < candidates_.size(); ++which) {
    const Candidates& c = candidates_[which];
    const cublasLtMatmulAlgo_t& a = c.algorithms[c.chosen];
    text << (which == 0 ? "; aligned: " : "; unaligned: ") << "candidate " << c.chosen << " of "
         << c.algorithms.size() << ", algorithm " << config(a, CUBLASLT_ALGO_CONFIG_ID) << " tile "
         << config(a, CUBLASLT_ALGO_CONFIG_TILE_ID) << " stages " << config(a, CUBLASLT_ALGO_CONFIG_STAGES_ID)
         << " cluster " << config(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) << " split "
         << config(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    if (c.milliseconds > 0) text << ", " << c.milliseconds << " ms";
  }
  return text.str();
}

}  // namespace fljsd::cuda
