# SPDX-License-Identifier: Apache-2.0
"""Writes data/measured/h200x2/evidence.json from the logs of one run of verify/tools/record_distributed.sh.

    python3 verify/tools/evidence_distributed.py LOGS > data/measured/h200x2/evidence.json

What is missing in LOGS is missing in the evidence. Exit status 1 if anything in it failed.
"""
import csv
import json
import pathlib
import re
import sys

import evidence

TESTS = {
    "nccl_threads": "nccl_threads_test.json",
    "nccl_processes": "nccl_processes_*_test.json",
    "loopback": "loopback_test.json",
    "one_gpu": "shard*_gpu_test.json",
}


def machine(logs):
    text = (logs / "machine.log").read_text()
    rows = list(csv.reader(line for line in text.splitlines() if re.match(r"NVIDIA .*, [\d.]+, ", line)))
    return {"gpu": rows[0][0], "gpus": len(rows), "driver": rows[0][1].strip()}


def nccl_version(logs):
    found = (logs / "benchmark.json", "nccl"), (logs / "link_rates.json", "nccl")
    for path, key in found:
        if path.exists():
            return json.loads(path.read_text())[key]
    versions = {v for log in logs.glob("*.log") for v in re.findall(r"NCCL version ([\w.+]+)", log.read_text(errors="replace"))}
    return sorted(versions)[0] if versions else None


def rank_times(logs):
    """Median milliseconds of each rank, by variant, pass and tokens; of the slowest one in benchmark.json's ms_median."""
    path = logs / "benchmark.json"
    results = json.loads(path.read_text())["results"] if path.exists() else []
    return {f"{r['variant']} {r['pass']} {r['tokens']}": r["ms_median_by_rank"] for r in results if "ms_median_by_rank" in r}


def process_groups(logs):
    path = logs / "check_process_groups.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    return {**{key: found[key] for key in ("ranks", "torch", "checks", "missing_rank_seconds") if key in found},
            "failed": len(found["failed"]), "largest_difference_from_one_gpu": found["largest"]}


def main():
    if len(sys.argv) != 2:
        sys.exit("Usage: evidence_distributed.py LOGS")
    logs = pathlib.Path(sys.argv[1])
    record = {
        "schema": 1,
        **machine(logs),
        "nccl": nccl_version(logs),
        "date": (logs / "date").read_text().strip() if (logs / "date").exists() else None,
        "cuda_tree": (logs / "cuda_tree").read_text().strip(),
        "gpu_tests": {name: evidence.gpu_tests(paths) for name, pattern in TESTS.items()
                      if (paths := sorted(logs.glob(pattern)))},
        "rank_ms": rank_times(logs),
        "process_groups": process_groups(logs),
        "mpi": json.loads((logs / "mpi.json").read_text()) if (logs / "mpi.json").exists() else None,
        "sanitizers": evidence.sanitizers(logs),
        # fuzz-nccl-1.json: over NCCL, one of several searches; fuzz-loopback-8-1.json: eight ranks on one GPU.
        "fuzz": evidence.fuzzing(sorted(logs.glob("fuzz-*.json")),
                                 lambda path, _: path.stem.removeprefix("fuzz-").rpartition("-")[0]),
    }
    print(json.dumps(record, indent=1))
    bad = (sum(tests["failed"] for tests in record["gpu_tests"].values())
           + sum(entry["errors"] != 0 for entry in record["sanitizers"].values())
           + sum(entry["findings"] for entry in record["fuzz"].values())
           + (record["process_groups"] or {"failed": 0})["failed"]
           + (record["mpi"] is not None and not record["mpi"]["good"]))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
