# SPDX-License-Identifier: Apache-2.0
# fljsd_options: what every target of the project is compiled with. -ffp-contract=off: a*b+c rounds twice unless the
# source says std::fma, so that results do not depend on the compiler's mood.
# -Wno-restrict, -Wno-[maybe-]uninitialized: GCC 12 reports std::string concatenation (its bug 105651) and the deliberately
# undefined registers of its own AVX-512 intrinsics (its bug 105593).
add_library(fljsd_options INTERFACE)
target_compile_options(fljsd_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict -Wno-maybe-uninitialized -Wno-uninitialized>)
if(FLJSD_NATIVE)
  target_compile_options(fljsd_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
  # Which instructions exist is the processor's affair; how to arrange them GCC 12 does worse when it tunes for AMD Zen:
  # Eigen's float64 product then runs at three quarters of the speed (./fljsd bench-cpu shows it beside OpenBLAS).
  target_compile_options(fljsd_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-mtune=generic>)
endif()
if(FLJSD_SANITIZE)
  target_compile_options(fljsd_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(fljsd_options INTERFACE -fsanitize=address,undefined)
endif()
