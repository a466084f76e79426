# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: the program, the reference library with its headers, and the CMake package.
include(CMakePackageConfigHelpers)

install(TARGETS fljsd_reference EXPORT fljsdTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY reference DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fljsd FILES_MATCHING PATTERN "*.h")
if(TARGET fljsd_cli)
  # The program finds the library of the CUDA stages wherever the whole was installed.
  file(RELATIVE_PATH to_libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(fljsd_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
  install(TARGETS fljsd_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(TARGET fljsd_cuda)
  install(TARGETS fljsd_cuda EXPORT fljsdCudaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES cuda/fljsd.h cuda/fljsd_distributed.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fljsd/cuda)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fljsd)
install(EXPORT fljsdTargets NAMESPACE fljsd:: DESTINATION ${package_dir})
if(TARGET fljsd_cuda)
  install(EXPORT fljsdCudaTargets NAMESPACE fljsd:: DESTINATION ${package_dir})
endif()
configure_package_config_file(cmake/fljsdConfig.cmake.in ${PROJECT_BINARY_DIR}/fljsdConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fljsdConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fljsdConfig.cmake ${PROJECT_BINARY_DIR}/fljsdConfigVersion.cmake
              cmake/FindMPFI.cmake
        DESTINATION ${package_dir})
