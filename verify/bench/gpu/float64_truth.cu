// SPDX-License-Identifier: Apache-2.0
#include "verify/bench/gpu/float64_truth.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace fljsd::bench {
namespace {

constexpr int threads = 256;

void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("float64 truth: ") + cudaGetErrorString(error));
}
void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string("float64 truth: ") + cublasLtGetStatusName(status));
  }
}

class Doubles {
 public:
  explicit Doubles(std::int64_t count) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<std::size_t>(count) * sizeof(double)));
    data_ = static_cast<double*>(memory);
  }
  Doubles(const Doubles&) = delete;
  Doubles& operator=(const Doubles&) = delete;
  ~Doubles() { cudaFree(data_); }
  double* get() const { return data_; }
  double* release() {
    double* data = data_;
    data_ = nullptr;
    return data;
  }

 private:
  double* data_ = nullptr;
};

__global__ void widen(const __nv_bfloat16* in, std::int64_t count, double* out) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    out[i] = static_cast<double>(__bfloat162float(in[i]));
  }
}

// Row-major C[m, n] = alpha·op(A)·op(B).
void multiply(cublasLtHandle_t lt, std::int64_t m, std::int64_t n, std::int64_t k, const double* a,
              bool transpose_a, const double* b, bool transpose_b, double* c, double alpha) {
  cublasLtMatmulDesc_t product;
  check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_64F, CUDA_R_64F));
  const cublasOperation_t first = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  const auto layout = [](std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t result;
    check(cublasLtMatrixLayoutCreate(&result, CUDA_R_64F, static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), columns));
    return result;
  };
  const cublasLtMatrixLayout_t of_b = transpose_b ? layout(n, k) : layout(k, n);
  const cublasLtMatrixLayout_t of_a = transpose_a ? layout(k, m) : layout(m, k);
  const cublasLtMatrixLayout_t of_c = layout(m, n);
  const double zero = 0;
  check(cublasLtMatmul(lt, product, &alpha, b, of_b, a, of_a, &zero, c, of_c, c, of_c, nullptr, nullptr, 0,
                       nullptr));
  cublasLtMatrixLayoutDestroy(of_c);
  cublasLtMatrixLayoutDestroy(of_a);
  cublasLtMatrixLayoutDestroy(of_b);
  cublasLtMatmulDescDestroy(product);
}

// The same in every thread of the block.
template <class Combine>
__device__ double reduce(double value, Combine combine) {
  __shared__ double shared[threads];
  __syncthreads();
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

// One block a token: the definition, with x and y overwritten: x becomes dD/dx.
__global__ void rows(double* x, const double* y, std::int64_t vocab, double beta, double temperature,
                     double* token_loss) {
  x += blockIdx.x * vocab;
  y += blockIdx.x * vocab;
  const auto sum = [](double a, double b) { return a + b; };
  const auto larger = [](double a, double b) { return fmax(a, b); };
  const double lowest = -1e300;
  double max_x = lowest, max_y = lowest;
  for (std::int64_t v = threadIdx.x; v < vocab; v += threads)
    max_x = fmax(max_x, x[v]), max_y = fmax(max_y, y[v]);
  max_x = reduce(max_x, larger);
  max_y = reduce(max_y, larger);
  double sum_x = 0, sum_y = 0;
  for (std::int64_t v = threadIdx.x; v < vocab; v += threads) {
    sum_x += exp((x[v] - max_x) / temperature);
    sum_y += exp((y[v] - max_y) / temperature);
  }
  sum_x = reduce(sum_x, sum);
  sum_y = reduce(sum_y, sum);
  const double logit = log(beta) - log1p(-beta);
  const auto log_q = [&](std::int64_t v) { return (x[v] - max_x) / temperature - log(sum_x); };
  const auto log_p = [&](std::int64_t v) { return (y[v] - max_y) / temperature - log(sum_y); };
  const auto softplus = [](double s) { return s > 0 ? s + log1p(exp(-s)) : log1p(exp(s)); };
  // With s = log(beta·p/((1−beta)·q)): log(q/M) = −log(1−beta) − softplus(s), log(p/M) = −log(beta) −
  // softplus(−s).
  double divergence = 0, kappa = 0;
  for (std::int64_t v = threadIdx.x; v < vocab; v += threads) {
    const double q = exp(log_q(v)), p = exp(log_p(v)), s = log_p(v) - log_q(v) + logit;
    divergence -= beta * p * (log(beta) + softplus(-s)) + (1 - beta) * q * (log1p(-beta) + softplus(s));
    kappa += q * softplus(s);
  }
  divergence = reduce(divergence, sum);
  kappa = reduce(kappa, sum);
  for (std::int64_t v = threadIdx.x; v < vocab; v += threads) {
    x[v] = (1 - beta) * exp(log_q(v)) * (kappa - softplus(log_p(v) - log_q(v) + logit));
  }
  if (threadIdx.x == 0) token_loss[blockIdx.x] = divergence;
}

__global__ void squares(const __nv_bfloat16* got, const double* want, std::int64_t count, double* error,
                        double* norm) {
  double e = 0, n = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += step) {
    const double difference = static_cast<double>(__bfloat162float(got[i])) - want[i];
    e += difference * difference;
    n += want[i] * want[i];
  }
  const auto sum = [](double a, double b) { return a + b; };
  e = reduce(e, sum);
  n = reduce(n, sum);
  if (threadIdx.x == 0) error[blockIdx.x] = e, norm[blockIdx.x] = n;
}

double relative_error(const void* got, const double* want, std::int64_t count) {
  constexpr int blocks = 1024;
  const Doubles parts(2 * blocks);
  squares<<<blocks, threads>>>(static_cast<const __nv_bfloat16*>(got), want, count, parts.get(),
                               parts.get() + blocks);
  check(cudaGetLastError());
  std::vector<double> host(2 * blocks);
  check(cudaMemcpy(host.data(), parts.get(), host.size() * sizeof(double), cudaMemcpyDeviceToHost));
  double error = 0, norm = 0;
  for (int i = 0; i < blocks; ++i)
    error += host[static_cast<std::size_t>(i)], norm += host[static_cast<std::size_t>(blocks + i)];
  return std::sqrt(error / norm);
}

std::vector<double> to_host(const double* data, std::int64_t count) {
  std::vector<double> host(static_cast<std::size_t>(count));
  check(cudaMemcpy(host.data(), data, host.size() * sizeof(double), cudaMemcpyDeviceToHost));
  return host;
}

}  // namespace

Float64Truth::Float64Truth(const TruthProblem& problem) : problem_(problem) {
  const std::int64_t t = problem.tokens, v = problem.vocab, h = problem.hidden;
  cublasLtHandle_t lt;
  check(cublasLtCreate(&lt));
  Doubles input(t * h), weight(v * h), x(t * v), y(t * v), losses(t);
  const auto convert = [](const void* in, std::int64_t count, double* out) {
    widen<<<2048, threads>>>(static_cast<const __nv_bfloat16*>(in), count, out);
    check(cudaGetLastError());
  };
  convert(problem.teacher_input, t * h, input.get());
  convert(problem.teacher_weight, v * h, weight.get());
  multiply(lt, t, v, h, input.get(), false, weight.get(), true, y.get(), 1);
  convert(problem.student_input, t * h, input.get());
  convert(problem.student_weight, v * h, weight.get());
  multiply(lt, t, v, h, input.get(), false, weight.get(), true, x.get(), 1);
  rows<<<static_cast<unsigned>(t), threads>>>(x.get(), y.get(), v, problem.beta, problem.temperature,
                                              losses.get());
  check(cudaGetLastError());
  const double factor = 1 / (static_cast<double>(t) * problem.temperature);
  Doubles input_grad(t * h), weight_grad(v * h);
  multiply(lt, t, h, v, x.get(), false, weight.get(), false, input_grad.get(), factor);
  multiply(lt, v, h, t, x.get(), true, input.get(), false, weight_grad.get(), factor);
  token_loss_ = to_host(losses.get(), t);
  check(cudaDeviceSynchronize());
  cublasLtDestroy(lt);
  input_grad_ = input_grad.release();
  weight_grad_ = weight_grad.release();
}

Float64Truth::~Float64Truth() {
  cudaFree(input_grad_);
  cudaFree(weight_grad_);
}

double Float64Truth::input_grad_error(const void* gradient) const {
  return relative_error(gradient, input_grad_, problem_.tokens * problem_.hidden);
}
double Float64Truth::weight_grad_error(const void* gradient) const {
  return relative_error(gradient, weight_grad_, problem_.vocab * problem_.hidden);
}
std::vector<double> Float64Truth::input_grad() const {
  return to_host(input_grad_, problem_.tokens * problem_.hidden);
}
std::vector<double> Float64Truth::weight_grad() const {
  return to_host(weight_grad_, problem_.vocab * problem_.hidden);
}

}  // namespace fljsd::bench
