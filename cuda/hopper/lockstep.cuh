// SPDX-License-Identifier: Apache-2.0
// Keeps the clusters of a persistent kernel together.
#pragma once

namespace fljsd::cuda::hopper {

// Clusters drift apart, and with them the weight tiles that they could share through L2. A producer that is
// ahead of the average of all waits a little: at most about 20 µs, so that clusters which are not running yet
// (another kernel may hold their multiprocessors) cost time, not progress. Nothing but speed depends on it.
class Lockstep {
 public:
  __device__ Lockstep(unsigned* progress, unsigned clusters) : progress_(progress), clusters_(clusters) {}
  __device__ __forceinline__ void step() {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(progress_) : "memory");
    if (++steps_ <= 1) return;
    const unsigned wanted = (steps_ - 1) * clusters_;
    for (int polls = 0; polls < patience_; ++polls) {
      unsigned reached;
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(reached) : "l"(progress_) : "memory");
      if (static_cast<int>(reached - wanted) >= 0) return;
    }
    patience_ = 0;  // somebody does not run: go on alone
  }
  // Counts the steps that longer ways than this one's have.
  __device__ void finish(unsigned most_steps) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(progress_), "r"(most_steps - steps_)
                 : "memory");
  }

 private:
  unsigned* progress_;
  unsigned clusters_;
  unsigned steps_ = 0;
  int patience_ = 30;  // polls of about 0.7 µs
};

}  // namespace fljsd::cuda::hopper
