#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of distributed.md between their markers: measurements from data/measured/h200x2/benchmark.json and
link_rates.json, where there are any, and predictions from data/predicted/distributed.json.

    python3 docs/distributed_tables.py           writes them anew
    python3 docs/distributed_tables.py --check   fails if the document has others
    python3 docs/distributed_tables.py --inputs  first takes the times of one GPU from data/measured/h200/benchmark.json
                                                 into data/predicted/distributed.json

Plain Python.
"""
import json
import sys
from pathlib import Path

import marked_tables

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data" / "measured" / "h200x2"
INPUTS = ROOT / "data" / "predicted" / "distributed.json"
ONE_GPU = ROOT / "data" / "measured" / "h200" / "benchmark.json"
FILE = Path(__file__).resolve().parent / "distributed.md"
PASSES = {"forward": "forward", "forward_backward": "forward and gradients"}
RECORD_BYTES = {"forward": 256, "forward_backward": 448}


def by_key(bench):
    return {(r["variant"], r["pass"], r["tokens"]): r for r in bench["results"]}


def sizes(bench):
    return sorted({r["tokens"] for r in bench["results"]})


def machine(bench, links):
    yield (f"{bench['gpus']} × {bench['gpu']} of one host, "
           f"{'with' if bench['peer_access'] else 'without'} peer access, NCCL {bench['nccl'] // 10000}."
           f"{bench['nccl'] % 10000 // 100}.{bench['nccl'] % 100}; vocab {bench['vocab']}, hidden {bench['hidden']}, "
           f"{bench['dtype']}, beta {bench['beta']}, {bench['inputs']} inputs; one process, median of {bench['rounds']} "
           "samples, variants in turns. All samples: `data/measured/h200x2/benchmark.json`.")


def times(bench, links):
    found = by_key(bench)
    for which, title in PASSES.items():
        yield f"| {title} | " + " | ".join(f"{t} tokens" for t in sizes(bench)) + " |"
        yield "|---" * (len(sizes(bench)) + 1) + "|"
        for variant in ("chunked-vocab", "fused", "vocab-parallel", "token-parallel"):
            row = []
            for tokens in sizes(bench):
                r = found.get((variant, which, tokens))
                if r is None:
                    row.append("not measured")
                    continue
                text = f"{r['ms_median']:.2f} ms"
                if r["gpus"] > 1:
                    text += f", {r['parallel_efficiency']:.3f}"
                row.append(text)
            gpus = next((r["gpus"] for r in bench["results"] if r["variant"] == variant), 0)
            label = f"`{variant}`, 1 GPU" if gpus == 1 else f"{variant}, {gpus} GPUs: time, efficiency"
            yield f"| {label} | " + " | ".join(row) + " |"
        sent = [found.get(("vocab-parallel", which, t)) for t in sizes(bench)]
        yield "| sent by a rank, vocab-parallel | " + " | ".join(
            "not measured" if r is None else f"{r['exchanged_bytes_sent_per_rank'] / 1e6:.2f} MB" for r in sent) + " |"
        difference = max((abs(r["loss_minus_one_gpu"]) for r in bench["results"]
                          if r["pass"] == which and r["gpus"] > 1), default=None)
        if difference is not None:
            yield ""
            text = f"Largest difference of the loss from one GPU: {difference:.1e}."
            grads = [r["input_grad_relative_difference"] for r in bench["results"]
                     if r["pass"] == which and r["gpus"] > 1 and "input_grad_relative_difference" in r]
            weights = [r["weight_grad_relative_difference"] for r in bench["results"]
                       if r["pass"] == which and r["gpus"] > 1 and "weight_grad_relative_difference" in r]
            if grads and weights:
                text += (f" Gradients (both rounded to {bench['dtype']}) differ by at most {max(grads):.1e} (input) and "
                         f"{max(weights):.1e} (weight) in relative 2-norm.")
            yield text
        yield ""


def links_table(bench, links):
    yield f"| NCCL on {links['ranks']} GPUs, one process each | tokens | bytes | time | rate |"
    yield "|---|---|---|---|---|"
    for r in links["results"]:
        yield (f"| {r['operation'].replace('_', '-')}: {r['what']} | {r['tokens']} | {r['bytes']} | {1000 * r['ms']:.0f} µs | "
               f"{r['bus_gb_per_s']:.1f} GB/s |")


def take_inputs():
    """Times of one GPU, and what is assumed of links that were not measured."""
    bench = json.loads(ONE_GPU.read_text())
    passes = {"forward": "forward", "full": "forward_backward", "forward_backward": "forward_backward"}
    found = {}
    for row in bench["rows"]:
        if row["variant"] == "chunked-vocab" and row["inputs"] == "uniform" and row["pass"] in passes:
            found.setdefault(passes[row["pass"]], {})[str(row["tokens"])] = row["median_ms"]
    record = {
        "one_gpu": {"stage": "chunked-vocab", "inputs": "uniform", "gpu": bench["gpu"], "vocab": bench["vocab"],
                    "hidden": bench["hidden"], "from": "data/measured/h200/benchmark.json",
                    "commit": bench["commit"], "timestamp": bench["timestamp"], "ms": found},
        "assumed": {"gb_per_s": 300, "latency_us": 30,
                    "why": "two thirds of the 450 GB/s that NVIDIA's data sheet gives for one direction of an H200's "
                           "NVLink (900 GB/s in both), and a generous time for the smallest exchange; not measured"}}
    INPUTS.parent.mkdir(exist_ok=True)
    INPUTS.write_text(json.dumps(record, indent=1) + "\n")


def predicted(inputs):
    one, assumed = inputs["one_gpu"], inputs["assumed"]
    alpha, per_ms, hidden = assumed["latency_us"] / 1000, assumed["gb_per_s"] * 1e6, one["hidden"]
    yield (f"$t_1$: stage `{one['stage']}`, {one['gpu']}, vocab {one['vocab']}, hidden {hidden}, of `{one['from']}`, "
           f"{one['timestamp'][:10]}. Assumed: $\\alpha$ = {assumed['latency_us']} µs, $B$ = {assumed['gb_per_s']} GB/s: "
           f"{assumed['why']}.")
    yield ""
    yield "| tokens of a host | pass | one GPU | 2 GPUs, vocab | 8 GPUs, vocab | 8 GPUs, tokens | 64 GPUs, 8 by 8 |"
    yield "|---|---|---|---|---|---|---|"
    for which, title in PASSES.items():
        for tokens, t1 in sorted((int(tokens), ms) for tokens, ms in one["ms"].get(which, {}).items()):

            def exchange(ranks):
                ms = alpha + RECORD_BYTES[which] * (ranks - 1) * tokens / per_ms
                if which != "forward":
                    ms += alpha + 8 * (ranks - 1) / ranks * tokens * hidden / per_ms
                return ms

            counts = alpha * (1 if which == "forward" else 2)
            times = [(2, t1 / 2 + exchange(2)), (8, t1 / 8 + exchange(8)), (8, t1 / 8 + counts),
                     (8, t1 / 8 + exchange(8) + counts)]
            yield f"| {tokens} | {title} | {t1:.2f} ms | " + " | ".join(
                f"{t1 / ranks / ms:.2f}" for ranks, ms in times) + " |"


def main():
    if "--inputs" in sys.argv[1:]:
        take_inputs()
    bench_file, links_file = DATA / "benchmark.json", DATA / "link_rates.json"
    bench = json.loads(bench_file.read_text()) if bench_file.exists() else None
    links = json.loads(links_file.read_text()) if links_file.exists() else None
    tables = {"predicted": predicted(json.loads(INPUTS.read_text()))}
    if bench is not None:
        tables.update(machine=machine(bench, links), times=times(bench, links))
    if links is not None:
        tables["links"] = links_table(bench, links)
    marked_tables.update(FILE, tables, "distributed_tables.py", check="--check" in sys.argv[1:])


if __name__ == "__main__":
    main()
