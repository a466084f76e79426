// SPDX-License-Identifier: Apache-2.0
// exp and log for generators: the same bits on every machine, which no standard promises of libm.
//
// Built from + - * / and exact scaling by powers of two, each of which IEEE 754 determines to the last bit;
// the project is compiled without contraction to fma. Relative error below 2^-50, far below what a generator
// needs.
#pragma once

namespace fljsd {

// e^x for |x| <= 700.
double portable_exp(double x);

// ln x for positive, finite, normal x. Near x = 1 the error is relative to ln x as well.
double portable_log(double x);

}  // namespace fljsd
