# SPDX-License-Identifier: Apache-2.0
# MPFI, the interval library, with MPFR and GMP behind it; it ships no CMake package of its own.
# Defines the target MPFI::MPFI.
find_path(MPFI_INCLUDE_DIR mpfi.h)
find_library(MPFI_LIBRARY mpfi)
find_library(MPFR_LIBRARY mpfr)
find_library(GMP_LIBRARY gmp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MPFI REQUIRED_VARS MPFI_LIBRARY MPFR_LIBRARY GMP_LIBRARY MPFI_INCLUDE_DIR)
mark_as_advanced(MPFI_INCLUDE_DIR MPFI_LIBRARY MPFR_LIBRARY GMP_LIBRARY)
if(MPFI_FOUND AND NOT TARGET MPFI::MPFI)
  add_library(MPFI::MPFI INTERFACE IMPORTED)
  target_include_directories(MPFI::MPFI INTERFACE ${MPFI_INCLUDE_DIR})
  target_link_libraries(MPFI::MPFI INTERFACE ${MPFI_LIBRARY} ${MPFR_LIBRARY} ${GMP_LIBRARY})
endif()
