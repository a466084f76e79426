# SPDX-License-Identifier: Apache-2.0
# Decides whether plans over several GPUs are built: NCCL's header decides, from the distribution (libnccl-dev), beside
# the CUDA toolkit, or from the nvidia-nccl wheel of the Python that is found first. The library itself, libnccl.so.2,
# is loaded when a communicator is made, so it may be missing here and differ there (2.14 or newer).
#
#   NCCL_INCLUDE_DIR   the folder of nccl.h, where it is not found by itself
option(FLJSD_NCCL "Build plans over several GPUs if NCCL's header is found" ON)
if(FLJSD_NCCL AND NOT NCCL_INCLUDE_DIR)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  set(wheel_folders "")
  if(Python3_FOUND)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c
              "import importlib.util as u; s = u.find_spec('nvidia.nccl'); print(*(s.submodule_search_locations if s else []))"
      OUTPUT_VARIABLE wheel_folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    separate_arguments(wheel_folders)
  endif()
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${wheel_folders} PATH_SUFFIXES include)
  mark_as_advanced(NCCL_INCLUDE_DIR)
endif()
if(NOT FLJSD_NCCL)
  message(STATUS "Several GPUs: left out (FLJSD_NCCL is OFF)")
elseif(NOT NCCL_INCLUDE_DIR)
  message(STATUS "Several GPUs: left out (no nccl.h)")
else()
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_version REGEX "define NCCL_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9;]" "" nccl_version "${nccl_version}")
  string(REPLACE ";" "." nccl_version "${nccl_version}")
  if(nccl_version VERSION_LESS 2.14)
    message(STATUS "Several GPUs: left out (NCCL ${nccl_version} in ${NCCL_INCLUDE_DIR}, but 2.14 is needed)")
  else()
    message(STATUS "Several GPUs: built with NCCL ${nccl_version}'s header in ${NCCL_INCLUDE_DIR}")
    set(fljsd_nccl_found ON)
  endif()
endif()
