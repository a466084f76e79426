#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The run of record on one GPU: times, tests, sanitizers, fuzzing and peers of one build, and evidence.json from them.
#
#   verify/tools/record.sh OUTDIR CUDA_TREE
#
# CUDA_TREE: `git rev-parse HEAD:cuda` of what was built. BIN: the folder of the built programs, by default
# build/release/bin. OUTDIR gets benchmark.json and .csv (fljsd bench: losses and gradients against float64 truth at
# every number of tokens), *_test.json and .log, san-TOOL.log, fuzz-*.json, peers.csv where PyTorch is installed, and
# evidence.json. What is timed has the GPU for itself; the rest runs side by side. About seven minutes on an H200 with 16
# cores, of which the truth at 8192 tokens needs 80 GB of the GPU's memory (TRUTH_TOKENS: up to how many tokens). STEPS:
# which of "bench tests fuzz peers", by default all; evidence.json is made when all have run into the same OUTDIR.
#
# Exit status: 0 everything ran and passed, 1 otherwise, 2 bad usage.
set -uo pipefail
# shellcheck source=verify/tools/record_steps.sh
source "$(dirname "$(readlink -f "$0")")/record_steps.sh"
cd "$bin" || exit 2
wanted=" ${STEPS:-bench tests fuzz peers} "

on bench && step bench 300 ./fljsd bench --rounds 16 --truth-tokens "${TRUTH_TOKENS:-8192}" --json "$out/benchmark.json" \
  --csv "$out/benchmark.csv"
if [[ -e $out/failed ]]; then
  tail -n 1 "$out/bench.log"  # without times there is no record
  exit 1
fi

if on tests; then
  for test in ./*_gpu_test ./cuda_interface_test; do
    name=$(basename "$test")
    step "$name" 200 "$test" --gtest_brief=1 --gtest_output=json:"$out/$name.json" &
  done
  few='*EqualModels*:*Chunks*:*AnyTemperature*:*LabelsAndReductions*'
  for tool in memcheck racecheck initcheck synccheck; do
    filter=$few
    [[ $tool == racecheck ]] && filter='*EqualModels*:*AnyTemperature*/fused*'  # it takes minutes for each stage
    echo "compute-sanitizer --tool $tool stages_gpu_test --gtest_filter=$filter" >"$out/san-$tool.command"
    step "san-$tool" 200 compute-sanitizer --tool "$tool" --error-exitcode 9 ./stages_gpu_test --gtest_filter="$filter" &
  done
  wait
fi

on fuzz && FLJSD=$bin/fljsd step fuzz 160 "$root/verify/tools/fuzz_stages.sh" "$out" 100

if ! on peers; then
  :
elif python3 -c 'import torch' 2>/dev/null; then
  step peers 150 python3 "$root/verify/bench/peers/time_peers.py" --tokens 1024,8192,2048,4096 --rounds 5 \
    --csv "$out/peers.csv"
else
  echo "peers: not timed, python3 has no PyTorch" | tee -a "$out/steps.log"
fi

if [[ ! -e $out/benchmark.json || ! -e $out/san-memcheck.log ]] || ! compgen -G "$out/fuzz-*.json" >/dev/null; then
  echo "evidence.json waits for the other steps"
elif python3 "$root/verify/tools/evidence.py" "$out" "$2" >"$out/evidence.part"; then
  mv "$out/evidence.part" "$out/evidence.json"
else
  rm "$out/evidence.part"
  echo evidence >>"$out/failed"
fi
end_record
