// SPDX-License-Identifier: Apache-2.0
// The vocabulary of both heads cut over MPI ranks, one GPU each: the loss and the gradients of this rank's
// shard.
//
//   mpirun -n 2 build/release/bin/mpi_example
//
// MPI carries the communicator's id, once; everything else travels over NCCL.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime_api.h>
#include <mpi.h>

#include "cuda/fljsd_distributed.h"

namespace {

void check(fljsd_status status) {
  if (status == FLJSD_OK) return;
  std::fprintf(stderr, "%s\n", fljsd_last_error());
  MPI_Abort(MPI_COMM_WORLD, 2);
}
void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  MPI_Abort(MPI_COMM_WORLD, 2);
}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes));
  return memory;
}

// Multiples of `unit` from -steps to steps, which bf16 holds exactly. Each depends on its index alone, so
// every rank can make its own rows. Products of two such numbers are multiples of a unit that is large enough
// for fp32 to add up `hidden` of them without rounding: logits are the same however the vocabulary is cut.
void* draw(std::int64_t first, std::int64_t count, std::uint64_t seed, std::uint64_t steps, float unit) {
  std::vector<std::uint16_t> host(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t z = (static_cast<std::uint64_t>(first + i) + (seed << 40)) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    const auto step =
        static_cast<std::int64_t>((z >> 40) % (2 * steps + 1)) - static_cast<std::int64_t>(steps);
    const float value = static_cast<float>(step) * unit;
    std::uint32_t bits;
    static_assert(sizeof bits == sizeof value);
    __builtin_memcpy(&bits, &value, sizeof bits);
    host[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(bits >> 16);
  }
  void* device = allocate(host.size() * 2);
  check(cudaMemcpy(device, host.data(), host.size() * 2, cudaMemcpyHostToDevice));
  return device;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1, local = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &local);
  check(cudaSetDevice(local));

  char id[FLJSD_COMMUNICATOR_ID_BYTES];
  if (rank == 0) check(fljsd_communicator_id(id));
  MPI_Bcast(id, sizeof id, MPI_CHAR, 0, MPI_COMM_WORLD);
  fljsd_ranks cut{};
  cut.struct_size = sizeof cut;
  check(fljsd_communicator_create(id, ranks, rank, 60'000, &cut.vocab));

  constexpr std::int64_t tokens = 512, hidden = 512, vocab = 32'001;
  const std::int64_t first = vocab * rank / ranks, rows = vocab * (rank + 1) / ranks - first;
  fljsd_config config;
  check(fljsd_config_init(&config, sizeof config));
  config.tokens = tokens;
  config.vocab = rows;
  config.student_hidden = config.teacher_hidden = hidden;
  config.gradients = FLJSD_STUDENT_INPUT_GRAD | FLJSD_STUDENT_WEIGHT_GRAD;
  fljsd_plan* plan = nullptr;
  check(fljsd_plan_create_distributed(&config, &cut, &plan));

  fljsd_tensors t{};
  t.struct_size = sizeof t;
  t.student_input = draw(0, tokens * hidden, 1, 13, 1.0f / 8);
  t.teacher_input = draw(0, tokens * hidden, 2, 13, 1.0f / 8);
  t.student_weight = draw(first * hidden, rows * hidden, 3, 5, 1.0f / 64);
  t.teacher_weight = draw(first * hidden, rows * hidden, 4, 5, 1.0f / 64);
  t.loss = static_cast<float*>(allocate(sizeof(float)));
  t.student_input_grad = allocate(tokens * hidden * 2);
  t.student_weight_grad = allocate(static_cast<std::size_t>(rows * hidden) * 2);
  std::uint64_t bytes = 0;
  check(fljsd_plan_workspace_bytes(plan, FLJSD_FORWARD_BACKWARD, &bytes));
  void* workspace = allocate(bytes);

  check(fljsd_forward_backward(plan, &t, workspace, bytes, nullptr));
  check(fljsd_plan_wait(plan, nullptr, 60'000));
  float loss = 0;
  check(cudaMemcpy(&loss, t.loss, sizeof loss, cudaMemcpyDeviceToHost));
  std::printf("rank %d of %d: entries %lld to %lld, loss %.9g\n", rank, ranks, static_cast<long long>(first),
              static_cast<long long>(first + rows), static_cast<double>(loss));
  fljsd_plan_destroy(plan);
  fljsd_communicator_destroy(cut.vocab);
  MPI_Finalize();
  return EXIT_SUCCESS;
}
