// SPDX-License-Identifier: Apache-2.0
// How the kernels that form dlogits find the largest ones (rounding_residuals.h).
#pragma once

#include "cuda/device_math.cuh"
#include "cuda/gradient_norm.cuh"
#include "cuda/rounding_residuals.h"

namespace fljsd::cuda {

// For one row. As a rule it costs a maximum and a comparison for four entries.
class ResidualFilter {
 public:
  // `factor`: of the dlogits.
  template <Divergence kind>
  static __device__ __forceinline__ ResidualFilter make(const ResidualLists& lists, Index row,
                                                        const RowConstants& constants, const Mixture& m,
                                                        float factor) {
    ResidualFilter f;
    const bool wanted = lists.counts != nullptr;
    f.least_ = wanted ? factor * residual_threshold<kind>(constants, m) : infinity();
    f.list_ = lists.data + row * ResidualLists::most;
    f.count_ = lists.counts + row;
    f.first_entry_ = static_cast<int>(lists.first_entry);
    return f;
  }

  // dlogits of four neighbours, before they are rounded to bf16. What is not finite is never listed.
  __device__ __forceinline__ void look_at(int column, const float (&g)[4]) const {
    if (!(fmaxf(fmaxf(fabsf(g[0]), fabsf(g[1])), fmaxf(fabsf(g[2]), fabsf(g[3]))) >= least_)) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (fabsf(g[i]) >= least_ && fabsf(g[i]) < infinity()) list(column + i, g[i]);
    }
  }

 private:
  // A slot in the order of arrival; the product sorts them.
  __device__ __forceinline__ void list(int column, float g) const {
    const unsigned slot = atomicAdd(count_, 1u);
    if (slot < ResidualLists::most)
      list_[slot] = {first_entry_ + column, g - __bfloat162float(__float2bfloat16_rn(g))};
  }

  float least_;
  int first_entry_;
  Residual* list_;
  unsigned* count_;
};

}  // namespace fljsd::cuda
