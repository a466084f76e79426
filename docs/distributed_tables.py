#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of distributed.md between their markers from data/measured/h200x2/benchmark.json and link_rates.json.

    python3 docs/distributed_tables.py           writes them anew
    python3 docs/distributed_tables.py --check   fails if the document has others

Plain Python. Without the files the document is left as it is.
"""
import json
import re
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data" / "measured" / "h200x2"
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


def rates(links):
    gather = [r for r in links["results"] if r["operation"] == "all_gather"]
    latency = min(r["ms"] for r in links["results"])
    return latency, max(r["bus_gb_per_s"] for r in links["results"]), gather


def links_table(bench, links):
    if links is None:
        return
    latency, rate, _ = rates(links)
    yield f"| NCCL on {links['ranks']} GPUs, one process each | tokens | bytes | time | rate |"
    yield "|---|---|---|---|---|"
    for r in links["results"]:
        yield (f"| {r['operation'].replace('_', '-')}: {r['what']} | {r['tokens']} | {r['bytes']} | {1000 * r['ms']:.0f} µs | "
               f"{r['bus_gb_per_s']:.1f} GB/s |")


def predicted(bench, links):
    if links is None:
        return
    found, (alpha, rate, _) = by_key(bench), rates(links)
    hidden, per_ms = bench["hidden"], rate * 1e6
    yield f"With $\\alpha$ = {1000 * alpha:.0f} µs and $B$ = {rate:.0f} GB/s:"
    yield ""
    yield "| tokens of a host | pass | one GPU | lost on 2 besides | 8 GPUs, vocab | 8 GPUs, tokens | 64 GPUs, 8 by 8 |"
    yield "|---|---|---|---|---|---|---|"
    for which, title in PASSES.items():
        for tokens in sizes(bench):
            one, two = found.get(("chunked-vocab", which, tokens)), found.get(("vocab-parallel", which, tokens))
            cut = found.get(("token-parallel", which, tokens))
            if one is None or two is None or cut is None:
                continue
            t1 = one["ms_median"]

            def exchange(ranks):
                ms = alpha + RECORD_BYTES[which] * (ranks - 1) * tokens / per_ms
                if which != "forward":
                    ms += alpha + 8 * (ranks - 1) / ranks * tokens * hidden / per_ms
                return ms

            lost = max(0.0, 2 * (two["ms_median"] - exchange(2)) / t1 - 1)
            lost_tokens = max(0.0, 2 * (cut["ms_median"] - alpha) / t1 - 1)
            vocab_8 = t1 / 8 * (1 + lost) + exchange(8)
            tokens_8 = t1 / 8 * (1 + lost_tokens) + alpha
            grid = vocab_8 + alpha  # every host has these tokens, and waits for the others' counts
            yield (f"| {tokens} | {title} | {t1:.2f} ms | {100 * lost:.1f} % | {t1 / 8 / vocab_8:.2f} | {t1 / 8 / tokens_8:.2f} | "
                   f"{t1 / 8 / grid:.2f} |")


def main():
    bench_file, links_file = DATA / "benchmark.json", DATA / "link_rates.json"
    if not bench_file.exists():
        return
    bench = json.loads(bench_file.read_text())
    links = json.loads(links_file.read_text()) if links_file.exists() else None
    text = was = FILE.read_text()
    for marker, table in (("machine", machine), ("times", times), ("links", links_table), ("predicted", predicted)):
        begin, end = f"<!-- begin:{marker} -->\n", f"<!-- end:{marker} -->"
        body = "\n".join(table(bench, links)).rstrip("\n")
        body = body + "\n" if body else ""
        text, count = re.subn(f"{begin}.*?{end}", lambda _, body=body, begin=begin, end=end: begin + body + end, text,
                              flags=re.S)
        if count != 1:
            sys.exit(f"distributed.md must have the markers {begin.strip()} and {end} once.")
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text)
    elif text != was:
        sys.exit("The tables of distributed.md are not what data/ gives: run python3 docs/distributed_tables.py.")


if __name__ == "__main__":
    main()
