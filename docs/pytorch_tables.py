#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of pytorch.md between their markers from data/measured/h200/pytorch.csv and pytorch_overhead.csv.

    python3 docs/pytorch_tables.py           writes them anew
    python3 docs/pytorch_tables.py --check   fails if the document has others

Plain Python. A file that is not there leaves its table as it is.
"""
import csv
import re
import sys
from pathlib import Path

import marked_tables

DATA = Path(__file__).resolve().parents[1] / "data" / "measured" / "h200"
FILE = Path(__file__).resolve().parent / "pytorch.md"
NAMES = {"torch-matmul": "the matrix products alone", "torch": "eager", "torch-compile": "`torch.compile`",
         "liger": "Liger-Kernel", "fljsd": "`fljsd.torch`",
         "fljsd-16GiB": "`fljsd.torch`, `memory_budget=16 << 30`"}


def rows(name):
    lines = (DATA / name).read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def times(measured):
    value = {(row["kernel_provider"], row["kernel_operation_mode"], row["metric_name"], int(row["x_value"])):
             float(row["y_value_50"]) for row in measured}
    sizes = sorted({key[3] for key in value})
    liger = next((row["liger_version"] for row in measured if row["liger_version"]), "none")
    versions = dict(re.findall(r'"(\w+)": "?([^",}]+)', measured[0]["extra_benchmark_config_str"]))
    yield (f"{measured[0]['gpu_name']}, {measured[0]['timestamp'][:10]}, PyTorch {versions['torch']}, Liger-Kernel {liger}; vocab "
           f"{versions['V']}, hidden {versions['H']}, bf16: median time, and the peak of PyTorch's memory with tensors and "
           "weights.")
    for mode, title in (("forward", "forward, no gradients"), ("full", "forward and backward")):
        yield ""
        yield "| " + " | ".join([title, *[f"{size} tokens" for size in sizes]]) + " |"
        yield "|---" * (len(sizes) + 1) + "|"
        for provider, label in NAMES.items():
            cells = [cell(value.get((provider, mode, "speed", size)), value.get((provider, mode, "memory", size)))
                     for size in sizes]
            yield "| " + " | ".join([label, *cells]) + " |"


def cell(milliseconds, mebibytes):
    return "not measured" if milliseconds is None else f"{milliseconds:.2f} ms, {mebibytes / 1024:.1f} GiB"


OVERHEAD = {"direct_us": "C interface", "operator_us": "`fused_linear_jsd`", "overhead_us": "difference",
            "overhead_of_least_us": "of the least", "overhead_after_work_us": "behind other work",
            "overhead_of_first_us": "of the first after waiting"}


def overhead(measured):
    columns = {key: title for key, title in OVERHEAD.items() if key in measured[0]}
    yield "| " + " | ".join(["a call at 16 tokens, vocab 256, hidden 64", *columns.values()]) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for row in measured:
        yield "| " + " | ".join([row["call"], *[f"{row[key]} µs" for key in columns]]) + " |"


def main():
    sources = (("times", "pytorch.csv", times), ("overhead", "pytorch_overhead.csv", overhead))
    tables = {marker: table(rows(name)) for marker, name, table in sources if (DATA / name).exists()}
    marked_tables.update(FILE, tables, "pytorch_tables.py", check="--check" in sys.argv[1:])


if __name__ == "__main__":
    main()
