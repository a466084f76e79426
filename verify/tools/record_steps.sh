# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What runs of record have in common; sourced by record.sh and record_distributed.sh with their arguments.
#
# Sets root, bin and out, makes the folder out, and defines step, on and end_record. SECONDS_IN_ALL, if it is set: after
# which nothing goes on. `wanted`, which the script sets: the steps to run, with a space around each.
if (($# != 2)) || [[ ! $2 =~ ^[0-9a-f]{40}$ ]]; then
  echo "Usage: $(basename "$0") OUTDIR CUDA_TREE, a folder and the 40 digits of a git tree" >&2
  exit 2
fi
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
bin=$(readlink -f "${BIN:-$root/build/release/bin}")
[[ -x $bin/fljsd ]] || { echo "$(basename "$0"): $bin holds no program fljsd; BIN names the folder of the build." >&2; exit 2; }
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
rm -f "$out/failed"

# step NAME LIMIT COMMAND...: output in NAME.log; a step that fails is counted, and the others go on.
step() {
  local name=$1 limit=$2 status=0
  local left=$((${SECONDS_IN_ALL:-SECONDS + limit} - SECONDS))
  shift 2
  if ((left < 3)); then
    echo "$name: not run, no time is left" | tee -a "$out/steps.log"
    echo "$name" >>"$out/failed"
    return
  fi
  timeout -k 5 $((limit < left ? limit : left)) "$@" >"$out/$name.log" 2>&1 || status=$?
  echo "$name: exit status $status after $SECONDS s" | tee -a "$out/steps.log"
  ((status == 0)) || echo "$name" >>"$out/failed"
}
# shellcheck disable=SC2154  # wanted is the script's
on() { [[ $wanted == *" $1 "* ]]; }

# Names what failed. The exit status of the run.
end_record() {
  [[ -e $out/failed ]] || return 0
  echo "failed: $(sort -u "$out/failed" | paste -sd ' ')"
  return 1
}
