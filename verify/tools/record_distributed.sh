#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The run of record of plans over several GPUs: times, rates of the links, tests, sanitizers and fuzzing of one build.
#
#   verify/tools/record_distributed.sh OUTDIR CUDA_TREE
#
# CUDA_TREE: `git rev-parse HEAD:cuda` of what was built. BIN: the folder of the built programs, by default
# build/release/bin; LOOPBACK: that of the stand-in for NCCL, by default build/release/loopback; LD_LIBRARY_PATH must
# lead to libnccl.so.2. PYTHON: a Python with PyTorch, by default python3, which gets PYTHON_LD_LIBRARY_PATH instead.
# STEPS: which of the steps below, by default all; FUZZ_SECONDS: for each of two kinds of fuzzing, by default 60;
# SECONDS_IN_ALL: after which nothing goes on, by default 1200.
#
#   times       distributed_benchmark and link_rates.py, the GPUs for themselves           (two GPUs or more)
#   nccl        the tests with a thread for each rank and with a process for each rank     (two GPUs or more)
#   torch       process groups of PyTorch against one GPU                                  (two GPUs or more)
#   mpi         mpi_example on all GPUs and on one; skipped if BIN has none, or without    (two GPUs or more)
#               MPIRUN, the launcher with its options, by default mpirun
#   fuzz        candidate cuda:vocab-parallel over NCCL                                    (two GPUs or more)
#   sanitizers  four tools, a process for each rank                                        (two GPUs or more)
#   loopback    tests with one rank; tests, fuzzing with 2, 4 and 8 ranks and four tools with all ranks on one GPU
#
# OUTDIR gets benchmark.json, link_rates.json, check_process_groups.json, mpi.json, *_test.json and .log, san-*.log,
# fuzz-*.json, machine.log and steps.log; verify/tools/evidence_distributed.py makes evidence.json of them.
#
# Exit status: 0 everything ran and passed, 1 otherwise, 2 bad usage.
set -uo pipefail
SECONDS_IN_ALL=${SECONDS_IN_ALL:-1200}
# shellcheck source=verify/tools/record_steps.sh
source "$(dirname "$(readlink -f "$0")")/record_steps.sh"
# shellcheck source=verify/tools/mps.sh
source "$root/verify/tools/mps.sh"
loopback=$(readlink -f "${LOOPBACK:-$root/build/release/loopback}")
echo "$2" >"$out/cuda_tree"
date -u +%Y-%m-%dT%H:%M:%SZ >"$out/date"
python=${PYTHON:-python3}
wanted=" ${STEPS:-times nccl torch mpi fuzz sanitizers loopback} "
gpus=$(nvidia-smi -L | wc -l)
export NCCL_DEBUG=${NCCL_DEBUG:-WARN} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$root/verify/python${PYTHONPATH:+:$PYTHONPATH}

over_nccl() { ((gpus >= 2)) && on "$1"; }
rm -f "$out/steps.log"
{
  nvidia-smi topo -m
  nvidia-smi --query-gpu=name,driver_version,clocks.max.sm --format=csv
} >"$out/machine.log" 2>&1

if over_nccl times; then
  step benchmark 100 "$bin/distributed_benchmark" --tokens 8192,1024,4096,2048 --rounds 8 --json "$out/benchmark.json"
  step link_rates 60 env LD_LIBRARY_PATH="${PYTHON_LD_LIBRARY_PATH:-${LD_LIBRARY_PATH:-}}" \
    "$python" -m torch.distributed.run --nproc-per-node "$gpus" "$root/examples/distributed/link_rates.py" \
    --json "$out/link_rates.json"
  # Of what they are, for whoever finds them apart from the rest.
  "$python" - "$out" <<'PYTHON'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
for path in (out / "benchmark.json", out / "link_rates.json"):
    if path.exists():
        of = {"cuda_tree": (out / "cuda_tree").read_text().strip(), "date": (out / "date").read_text().strip()}
        path.write_text(json.dumps({**of, **json.loads(path.read_text())}, indent=1) + "\n")
PYTHON
fi

if on loopback; then
  for test in shard_gpu_test shard_sweep_gpu_test; do  # one rank, and shards by hand
    step "$test" 90 "$bin/$test" --gtest_brief=1 --gtest_output=json:"$out/$test.json"
  done
fi

if over_nccl nccl; then
  step nccl_threads_test 90 "$bin/distributed_gpu_test" --gtest_output=json:"$out/nccl_threads_test.json"
  RANK_LOG="$out/nccl_processes_{}.log" step nccl_processes 90 "$root/verify/tools/rank_processes.sh" 2 \
    "$bin/distributed_gpu_test" '--gtest_filter=VocabParallel.*:TokenParallel.*' \
    --gtest_output=json:"$out/nccl_processes_{}_test.json"
fi

if over_nccl torch; then
  for program in examples/distributed/torchrun_example verify/python/tests/check_process_groups; do
    name=$(basename "$program")
    step "$name" 90 env LD_LIBRARY_PATH="${PYTHON_LD_LIBRARY_PATH:-${LD_LIBRARY_PATH:-}}" \
      "$python" -m torch.distributed.run --nproc-per-node "$gpus" "$root/$program.py" --json "$out/$name.json"
  done
fi

if over_nccl mpi; then
  read -ra launcher <<<"${MPIRUN:-mpirun}"
  if [[ -x $bin/mpi_example ]] && command -v "${launcher[0]}" >/dev/null; then
    step mpi 90 "$python" "$root/verify/tools/check_mpi.py" "$gpus" "$bin/mpi_example" --json "$out/mpi.json"
  else
    echo "mpi: skipped, there is no $bin/mpi_example or no launcher ${launcher[0]}" | tee -a "$out/steps.log"
  fi
fi

# fuzz NAME PROCESSES SECONDS: side by side, through the Multi-Process Service where it can be started.
fuzz() {
  local name=$1 processes=$2 seconds=$3 seed
  for ((seed = 1; seed <= processes; ++seed)); do
    step "fuzz-$name-$seed" $((seconds + 30)) "$bin/fljsd" fuzz --candidate cuda:vocab-parallel --seconds "$seconds" \
      --seed $((seed + 100)) --json "$out/fuzz-$name-$seed.json" &
  done
  wait
}
# san NAME TOOL FILTER [WRAPPER...]: a sanitizer's run of distributed_gpu_test, on the first recipes only. Not watched are
# NCCL's own kernels, which wait for each other and take most of the time, and calls by which NCCL asks whether it has a
# kernel for the device. racecheck takes the pipelines of cuBLASLt's kernels (nvjet) for races, and to leave those out too
# makes it fail (data/measured/h200x2/racecheck.txt): its exit status says nothing, and evidence.py tells whose the races are.
san() {
  local name=san-$1-$2 tool=$2 filter=$3
  local options=(--tool "$tool" --kernel-name-exclude kns=nccl)
  shift 3
  [[ $tool == racecheck ]] || options+=(--error-exitcode 9)
  [[ $tool != memcheck ]] || options+=(--report-api-errors no)
  echo "compute-sanitizer ${options[*]} distributed_gpu_test --gtest_filter=$filter" >"$out/$name.command"
  FLJSD_GPU_RECIPES=0 FLJSD_TEAM_RECIPES=5 step "$name" "${SANITIZER_SECONDS:-100}" "$@" compute-sanitizer \
    "${options[@]}" "$bin/distributed_gpu_test" --gtest_filter="$filter"
}
tools=(memcheck racecheck initcheck synccheck)

if over_nccl fuzz; then
  start_service
  fuzz nccl "${FUZZ_PROCESSES:-6}" "${FUZZ_SECONDS:-60}"
  stop_service
fi

if over_nccl sanitizers; then
  for tool in "${tools[@]}"; do
    RANK_LOG="$out/san-nccl-$tool-{}.part" san nccl "$tool" 'VocabParallel.*:TokenParallel.*' "$root/verify/tools/rank_processes.sh" 2 &
  done
  wait
  for tool in "${tools[@]}"; do  # one log a tool, of all ranks
    cat "$out/san-nccl-$tool".log "$out/san-nccl-$tool"-[0-9]*.part >"$out/san-all.part" 2>/dev/null
    mv "$out/san-all.part" "$out/san-nccl-$tool.log"
    rm -f "$out/san-nccl-$tool"-[0-9]*.part
  done
fi

if on loopback; then
  export LD_LIBRARY_PATH=$loopback:${LD_LIBRARY_PATH:-} FLJSD_RANKS_SHARE_A_GPU=3
  step loopback_test 120 "$bin/distributed_gpu_test" --gtest_output=json:"$out/loopback_test.json" &
  # One GPU: eight threads at once are too many launches for racecheck, which loses track of one.
  for tool in "${tools[@]}"; do
    grid="Grid.*"
    [[ $tool != racecheck ]] || grid=Grid.KeepsTheClass
    san loopback "$tool" "VocabParallel.*:TokenParallel.*:$grid" &
  done
  wait
  start_service
  for ranks in 2 4 8; do
    FLJSD_RANKS_SHARE_A_GPU=$ranks fuzz "loopback-$ranks" "${LOOPBACK_FUZZ_PROCESSES:-4}" "${FUZZ_SECONDS:-60}" &
  done
  wait
  stop_service
fi

end_record
