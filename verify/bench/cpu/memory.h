// SPDX-License-Identifier: Apache-2.0
// What a piece of work adds to the memory of this process, as Linux counts it.
#pragma once

namespace fljsd::bench {

// Forgets the largest resident set seen so far. Throws std::system_error where the kernel does not offer
// that.
void reset_peak_memory();

// Resident set of this process in bytes: now, and the largest since the last reset.
double resident_bytes();
double peak_resident_bytes();

}  // namespace fljsd::bench
