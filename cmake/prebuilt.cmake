# SPDX-License-Identifier: Apache-2.0
# Installs what the build in FLJSD_PREBUILT would install. Both need the same CMAKE_INSTALL_LIBDIR, which the program's
# search path for the library depends on.
get_filename_component(folder ${FLJSD_PREBUILT} ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
if(NOT EXISTS ${folder}/bin/fljsd)
  message(FATAL_ERROR "FLJSD_PREBUILT is ${FLJSD_PREBUILT}, but there is no bin/fljsd in ${folder}.")
endif()
add_custom_target(fljsd_cli)
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${folder}\" --prefix \"\${CMAKE_INSTALL_PREFIX}\"
                              OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)")
