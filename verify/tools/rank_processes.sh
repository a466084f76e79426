#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command once for each rank, as processes that meet (verify/candidates/cuda/rank_folder.h).
#
#   verify/tools/rank_processes.sh RANKS COMMAND...
#
# In COMMAND, {} stands for the rank. Output goes to RANK_LOG, a path in which {} stands for the rank, if it is set.
# Exit status: 0 if all ranks had 0, 1 otherwise, 2 bad usage.
set -uo pipefail
if (($# < 2)) || [[ ! $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "Usage: rank_processes.sh RANKS COMMAND..., a number and a command in which {} stands for the rank" >&2
  exit 2
fi
ranks=$1
shift
FLJSD_RANK_FOLDER=$(mktemp -d)
export FLJSD_RANK_FOLDER FLJSD_RANKS=$ranks
pids=()
finish() {
  ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null
  rm -rf "$FLJSD_RANK_FOLDER"
}
trap finish EXIT
trap 'exit 1' INT TERM
for ((rank = 0; rank < ranks; ++rank)); do
  log=${RANK_LOG:-/dev/stdout}
  FLJSD_RANK=$rank "${@//\{\}/$rank}" >>"${log//\{\}/$rank}" 2>&1 &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
pids=()
exit $status
