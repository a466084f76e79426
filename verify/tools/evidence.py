# SPDX-License-Identifier: Apache-2.0
"""Writes data/measured/GPU/evidence.json from the logs of one run on a GPU.

    python3 verify/tools/evidence.py LOGS CUDA_TREE > data/measured/h200/evidence.json

verify/tools/record.sh makes such logs and calls this.

LOGS holds benchmark.json (fljsd bench --json), *_test.json (--gtest_output=json:...), san-TOOL.log (compute-sanitizer's
output, its command in san-TOOL.command) and fuzz-*.json (fljsd fuzz --json). CUDA_TREE: git rev-parse HEAD:cuda of what ran.
What is missing in LOGS is missing in the evidence.
"""
import json
import pathlib
import re
import sys


def gpu_tests(paths):
    passed = failed = skipped = 0
    for path in paths:
        # A suite that is skipped before its first test: GoogleTest's report calls its tests completed.
        log = path.with_suffix(".log")
        skips_all = log.exists() and log.read_text().startswith("SKIPPED: ")
        for suite in json.loads(path.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                if test.get("failures"):
                    failed += 1
                elif skips_all or test["result"] == "SKIPPED":
                    skipped += 1
                else:
                    passed += 1
    return {"passed": passed, "failed": failed, "skipped": skipped}


def races_of_cublaslt(text):
    """How many of racecheck's reports are of kernels named nvjet alone: the products of cuBLASLt, whose pipelines the tool
    takes for races. They can be told by name only: a run that leaves these kernels out fails in the tool
    (data/measured/h200x2/racecheck.txt)."""
    reports = re.findall(r"Race reported between (.*(?:\n=+ +and .*)+)", text)
    return sum(set(re.findall(r" access at (\w{5})", report)) == {"nvjet"} for report in reports)


def sanitizers(logs):
    found = {}
    for path in sorted(logs.glob("san-*.log")):
        text = path.read_text(errors="replace")
        # One of each, or one for each rank where ranks are processes.
        errors = re.findall(r"(?:ERROR SUMMARY: (\d+) errors?$)|(?:RACECHECK SUMMARY: (\d+) hazard)", text, re.M)
        ran = re.findall(r"\[==========\] (\d+) tests? from .* ran", text)
        command = path.with_suffix(".command")
        # Without a summary the tool did not come to its end, and it says itself when it lost track.
        ended = errors and len(errors) == len(ran) and "Internal Sanitizer Error" not in text
        not_ours = races_of_cublaslt(text)
        found[path.stem.removeprefix("san-")] = {
            "errors": sum(int(a or b) for a, b in errors) - not_ours if ended else None,
            **({"races_of_cublaslt": not_ours} if not_ours else {}),
            "tests": sum(map(int, ran)) if ran else None,
            "command": command.read_text().strip() if command.exists() else None,
        }
    return found


def fuzzing(paths, name=lambda path, report: report["candidate"]):
    found = {}
    for path in paths:
        report = json.loads(path.read_text())
        entry = found.setdefault(name(path, report), {"cases": 0, "recipes": 0, "findings": 0, "seeds": []})
        entry["cases"] += report["cases"]
        entry["recipes"] += report["recipes"]
        entry["findings"] += len(report["findings"])
        entry["seeds"].append(report["seed"])
        worst = entry.setdefault("worst_error_over_budget", {})
        for quantity, ratio in report["worst_ratio"].items():
            worst[quantity] = max(ratio, worst.get(quantity, 0))
    return found


def headline(bench):
    ratios = {}
    for row in bench["rows"]:
        if row["inputs"] != "uniform" or row["variant"] == "gemm":
            continue
        # Records say which plain products a row is to be compared with; older ones did not say it of G6.
        base = row.get("baseline", "G2" if row["pass"] == "forward" else "G4").lower()
        stage = "fused_one_pass" if row["variant"] == "fused" else row["variant"].replace("-", "_")
        name = f"{stage}_{row['pass']}_over_{base}"
        ratio = row["median_ratio_g6"] if base == "g6" else row["median_ratio"]
        ratios.setdefault(name, {})[str(row["tokens"])] = round(ratio, 4)
    return ratios


def main():
    if len(sys.argv) != 3:
        sys.exit("Usage: evidence.py LOGS CUDA_TREE")
    logs, tree = pathlib.Path(sys.argv[1]), sys.argv[2]
    bench = json.loads((logs / "benchmark.json").read_text())
    evidence = {
        "schema": 1,
        "gpu": bench["gpu"],
        "driver": bench["driver"],
        "date": bench["timestamp"],
        "cuda_tree": tree,
        "gpu_tests": gpu_tests(sorted(logs.glob("*_test.json"))),
        "sanitizers": sanitizers(logs),
        "fuzzing": fuzzing(sorted(logs.glob("fuzz-*.json"))),
        "inputs": f"uniform k/256, vocab {bench['vocab']}, hidden {bench['hidden']}, bf16",
        "headline": headline(bench),
    }
    print(json.dumps(evidence, indent=1))


if __name__ == "__main__":
    main()
