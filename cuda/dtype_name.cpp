// SPDX-License-Identifier: Apache-2.0
#include "cuda/settings.h"

namespace fljsd::cuda {

const char* name(fljsd_dtype dtype) {
  switch (dtype) {
    case FLJSD_ABSENT: return "absent";
    case FLJSD_BF16: return "bf16";
    case FLJSD_F16: return "f16";
    case FLJSD_F32: return "f32";
  }
  return "?";
}

}  // namespace fljsd::cuda
