# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=<our build folder> -DSOURCE=<this folder> -DWORK=<scratch folder> -P run.cmake
# Installs the build into a scratch prefix, builds the small project against it, and runs it.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " line)
    message(FATAL_ERROR "failed with ${status}: ${line}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
if(EXISTS ${WORK}/build/cuda_consumer)
  run(${WORK}/build/cuda_consumer)
endif()
run(${WORK}/prefix/bin/fljsd --version)
