// SPDX-License-Identifier: Apache-2.0
// A C program that lists the stages; needs no GPU.
#include <stdio.h>

#include "cuda/fljsd.h"

int main(void) {
  for (int32_t i = 0; i < fljsd_stage_count(); ++i) {
    fljsd_stage stage = {sizeof stage};
    if (fljsd_stage_get(i, &stage) != FLJSD_OK) return 1;
    printf("%-20s %s\n", stage.name, stage.description);
  }
  return fljsd_version() > 0 && fljsd_stage_count() > 0 ? 0 : 1;
}
