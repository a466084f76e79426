# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# NVIDIA's Multi-Process Service for the script that sources this: one of its own, under folders of its own, that ends with
# the script.
services=$(mktemp -d)
trap 'stop_service; rm -rf "$services"' EXIT

# Whether the processes that follow share the GPU through it.
start_service() {
  export CUDA_MPS_PIPE_DIRECTORY=$services/pipe CUDA_MPS_LOG_DIRECTORY=$services/log
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  timeout 10 nvidia-cuda-mps-control -d >/dev/null 2>&1 && return
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  return 1
}
stop_service() {
  [[ -z ${CUDA_MPS_PIPE_DIRECTORY:-} ]] || echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1 || true
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}
