// SPDX-License-Identifier: Apache-2.0
// The other side of exec:COMMAND, for programs in C++: answers an engine's JSON lines.
//
//   int main() {
//     FunctionCandidate candidate("mine", "my kernel", {AccuracyClass::fp32_logits, false,
//     {Feature::labels}}, my_function); return serve(candidate);
//   }
#pragma once

#include "verify/candidates/candidate.h"

namespace fljsd {

// Answers on standard input and output until the engine closes them; returns the exit status, 0. What the
// candidate prints to stdout meanwhile goes to stderr: from here on the process's descriptors 0 and 1 are not
// the engine's. An exception in compute() is reported as an error for that case.
int serve(Candidate& candidate);

}  // namespace fljsd
