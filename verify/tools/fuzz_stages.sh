#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every CUDA stage that computes a loss, side by side on one GPU:
#
#   verify/tools/fuzz_stages.sh OUTDIR SECONDS [CASES [SEED]]
#
# CASES (default 20000): evaluations of each stage, in four pieces of a quarter each with seeds SEED (default 1) and the
# three after it. SECONDS: when the search ends even if there are cases left. OUTDIR/fuzz-STAGE-SEED.json is the report
# of a piece (fljsd fuzz --json; verify/tools/evidence.py adds them up), .log its text. FLJSD: the program, by default
# build/release/bin/fljsd.
#
# Processes of one GPU take turns, which costs them most of their time. Through NVIDIA's Multi-Process Service 15 of them
# made 4070 evaluations a second instead of 950 (H200, 16 cores), so it is started where that is possible.
#
# Prints a line for each stage. Exit status: 0 every case was tried and nothing failed, 1 otherwise, 2 bad usage. A stage
# that needs more GPUs than there are is named and left out.
set -euo pipefail
usage() {
  echo "Usage: fuzz_stages.sh OUTDIR SECONDS [CASES [SEED]], the last three whole numbers" >&2
  exit 2
}
(($# >= 2 && $# <= 4)) || usage
for number in "${@:2}"; do [[ $number =~ ^[0-9]+$ ]] || usage; done
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
export FLJSD=${FLJSD:-$root/build/release/bin/fljsd} OUT=$1 DEADLINE=$(($(date +%s) + $2))
cases=${3:-20000} seed=${4:-1} pieces=4
export CASES=$(((cases + pieces - 1) / pieces))
mkdir -p "$OUT"

mapfile -t stages < <("$FLJSD" fuzz --list --json - | grep -oE '"cuda:[^"]*"' | tr -d '"' | sed 's/^cuda://')
((${#stages[@]})) || { echo "fuzz_stages.sh: $FLJSD has no CUDA stages." >&2; exit 2; }

# shellcheck source=verify/tools/mps.sh
source "$root/verify/tools/mps.sh"
how="taking turns"
if start_service; then how="through the Multi-Process Service"; fi

piece() {  # STAGE SEED
  local left=$((DEADLINE - $(date +%s))) report=$OUT/fuzz-$1-$2
  ((left > 0)) || { echo "there was no time left" >"$report.log"; return 0; }
  # A search that hangs is ended; it then has no report.
  timeout -k 5 $((left + 40)) "$FLJSD" fuzz --candidate "cuda:$1" --cases "$CASES" --seconds "$left" --seed "$2" --json "$report.json" \
    >"$report.log" 2>&1 || true  # what it found is in the report
}
export -f piece
began=$(date +%s)
# The later stages take longer to plan: they go first, so that the short searches fill the end.
for ((i = ${#stages[@]} - 1; i >= 0; --i)); do
  for ((s = seed; s < seed + pieces; ++s)); do printf '%s %s\n' "${stages[i]}" "$s"; done
done | xargs -P "$(nproc)" -L 1 bash -c 'piece "$0" "$1"'

echo "$(nproc) processes $how, $(($(date +%s) - began)) s"
python3 - "$OUT" "$cases" "$seed" "$pieces" "${stages[@]}" <<'PYTHON'
import json, pathlib, sys
out, (cases, seed, pieces), stages = pathlib.Path(sys.argv[1]), map(int, sys.argv[2:5]), sys.argv[5:]
complete = True
for stage in stages:
    reports = [out / f"fuzz-{stage}-{s}.json" for s in range(seed, seed + pieces)]
    read = [json.loads(r.read_text()) for r in reports if r.exists()]
    tried, findings = sum(r["cases"] for r in read), sum(len(r["findings"]) for r in read)
    missing = "" if len(read) == pieces else f", {pieces - len(read)} of {pieces} searches without a report"
    log = reports[0].with_suffix(".log").read_text().strip()
    if not read and "cannot run here" in log:  # a stage for more GPUs than there are: said, and no failure
        print(f"{stage}: not fuzzed. {log.removeprefix('fljsd: ')}")
        continue
    print(f"{stage}: {tried} evaluations, {findings} findings{missing}")
    complete = complete and tried >= cases and findings == 0 and not missing
sys.exit(0 if complete else 1)
PYTHON
