#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of distributed.md between their markers, from data/measured/h200x2/: benchmark.json, link_rates.json
and evidence.json.

    python3 docs/distributed_tables.py           writes them anew
    python3 docs/distributed_tables.py --check   fails if the document has others

Plain Python.
"""
import json
import sys
from pathlib import Path

import marked_tables

DATA = Path(__file__).resolve().parents[1] / "data" / "measured" / "h200x2"
FILE = Path(__file__).resolve().parent / "distributed.md"
PASSES = {"forward": "forward", "forward_backward": "forward and gradients"}
RECORD_BYTES = {"forward": 256, "forward_backward": 448}
ONE_GPU = ("chunked-vocab", "fused")
SEVERAL = ("vocab-parallel", "token-parallel")
APART = "shards-apart"  # each GPU its shard, without exchanges


def by_key(bench):
    return {(r["variant"], r["pass"], r["tokens"]): r for r in bench["results"]}


def sizes(bench):
    return sorted({r["tokens"] for r in bench["results"]})


def machine(bench):
    yield (f"{bench['gpus']} × {bench['gpu']} of one host, "
           f"{'with' if bench['peer_access'] else 'without'} peer access, NCCL {version(bench['nccl'])}; vocab {bench['vocab']}, hidden {bench['hidden']}, "
           f"{bench['dtype']}, beta {bench['beta']}, {bench['inputs']} inputs; one process, median of {bench['rounds']} "
           "samples, variants in turns. "
           f"{bench['date'][:10]}, tree of `cuda/` {bench['cuda_tree'][:12]}. All samples: `data/measured/h200x2/benchmark.json`.")


def efficiency(one, several):
    return one["ms_median"] / (several["gpus"] * several["ms_median"])


def by_rank(result):
    return " / ".join(f"{ms:.2f}" for ms in result["ms_median_by_rank"]) + " ms"


def times(bench):
    found = by_key(bench)
    for which, title in PASSES.items():
        def row(label, cell):
            return f"| {label} | " + " | ".join(cell(t) for t in sizes(bench)) + " |"

        yield f"| {title} | " + " | ".join(f"{t} tokens" for t in sizes(bench)) + " |"
        yield "|---" * (len(sizes(bench)) + 1) + "|"
        for stage in ONE_GPU:
            yield row(f"`{stage}`, 1 GPU", lambda t: f"{found[stage, which, t]['ms_median']:.2f} ms")
        for variant in SEVERAL:
            yield row(f"{variant}, {bench['gpus']} GPUs", lambda t: f"{found[variant, which, t]['ms_median']:.2f} ms")
            if "ms_median_by_rank" in found[variant, which, sizes(bench)[0]]:  # older records have the slowest rank's alone
                yield row("each rank's", lambda t: by_rank(found[variant, which, t]))
            for stage in ONE_GPU:
                yield row(f"its efficiency against `{stage}` on 1 GPU",
                          lambda t: f"{efficiency(found[stage, which, t], found[variant, which, t]):.3f}")
        if (APART, which, sizes(bench)[0]) in found:
            yield row("each GPU its shard, at once, without exchange", lambda t: by_rank(found[APART, which, t]))
        yield row("sent by a rank, vocab-parallel",
                  lambda t: f"{found['vocab-parallel', which, t]['exchanged_bytes_sent_per_rank'] / 1e6:.2f} MB")
        several = [r for r in bench["results"] if r["pass"] == which and r["variant"] in SEVERAL]
        yield ""
        text = f"Largest difference of the loss from one GPU: {max(abs(r['loss_minus_one_gpu']) for r in several):.1e}."
        inputs, weights = ([r[key] for r in several if key in r]
                           for key in ("input_grad_relative_difference", "weight_grad_relative_difference"))
        if inputs and weights:
            text += (f" Gradients (both rounded to {bench['dtype']}) differ by at most {max(inputs):.1e} (input) and "
                     f"{max(weights):.1e} (weight) in relative 2-norm.")
        yield text
        yield ""


def links_table(links):
    yield f"| NCCL on {links['ranks']} GPUs, one process each | tokens | bytes | time | rate |"
    yield "|---|---|---|---|---|"
    for r in links["results"]:
        yield (f"| {r['operation'].replace('_', '-')}: {r['what']} | {r['tokens']} | {r['bytes']} | {1000 * r['ms']:.0f} µs | "
               f"{r['bus_gb_per_s']:.1f} GB/s |")


def link_model(links):
    """Time of an exchange: alpha, in ms, is the least that one took; bytes per ms beyond it are those of the largest one."""
    alpha = min(r["ms"] for r in links["results"])
    largest = max(links["results"], key=lambda r: r["bus_gb_per_s"] * r["ms"])
    return alpha, largest["bus_gb_per_s"] * 1e6 * largest["ms"] / (largest["ms"] - alpha)


def stage_of_a_shard(bench, which):
    """The stage on one GPU whose sweep a rank of the vocabulary group has."""
    plans = [r.get("plan_rank_0", "") for r in bench["results"] if r["variant"] == "vocab-parallel" and r["pass"] == which]
    has_fused = which == "forward" and plans and all("forward: fused sweep" in plan for plan in plans)
    return "fused" if has_fused else "chunked-vocab"


def predicted(bench, links):
    alpha, per_ms = link_model(links)
    hidden, found = bench["hidden"], by_key(bench)
    yield (f"From `data/measured/h200x2/`: $t_1$ is the time of the stage whose sweep a shard has, "
           f"{' and '.join(f'`{stage_of_a_shard(bench, which)}` ({title})' for which, title in PASSES.items())}; "
           f"$\\alpha$ = {1000 * alpha:.0f} µs, the least time of an exchange; $B$ = {per_ms / 1e6:.0f} GB/s, from the largest. "
           f"Both are of {links['ranks']} GPUs; that 8 on one switch, and hosts among each other, have the same is assumed.")
    yield ""
    yield ("| tokens of a host | pass | one GPU | 2 GPUs, vocab: measured | predicted | 8 GPUs, vocab | 8 GPUs, tokens | "
           "64 GPUs, 8 by 8 |")
    yield "|---|---|---|---|---|---|---|---|"
    for which, title in PASSES.items():
        for tokens in sizes(bench):
            one = found[stage_of_a_shard(bench, which), which, tokens]
            t1 = one["ms_median"]

            def exchange(ranks):
                ms = alpha + RECORD_BYTES[which] * (ranks - 1) * tokens / per_ms
                if which != "forward":
                    ms += alpha + 8 * (ranks - 1) / ranks * tokens * hidden / per_ms
                return ms

            counts = alpha * (1 if which == "forward" else 2)
            times_ = [(2, t1 / 2 + exchange(2)), (8, t1 / 8 + exchange(8)), (8, t1 / 8 + counts),
                      (8, t1 / 8 + exchange(8) + counts)]
            measured = efficiency(one, found["vocab-parallel", which, tokens])
            yield f"| {tokens} | {title} | {t1:.2f} ms | {measured:.2f} | " + " | ".join(
                f"{t1 / ranks / ms:.2f}" for ranks, ms in times_) + " |"


WHERE = {"nccl_threads": "two GPUs over NCCL, a thread for each rank", "nccl_processes": "the same, a process for each rank",
         "nccl": "two GPUs over NCCL", "loopback": "all ranks on one GPU", "one_gpu": "one rank, with and without NCCL; shards by hand"}


def runs(evidence):
    yield f"{evidence['date'][:10]}, tree of `cuda/` {evidence['cuda_tree'][:12]}, NCCL {version(evidence['nccl'])}."
    yield ""
    yield "| | where | |"
    yield "|---|---|---|"
    for name, tests in evidence["gpu_tests"].items():
        skipped = f", {tests['skipped']} skipped" if tests["skipped"] else ""
        yield f"| tests | {WHERE[name]} | {tests['passed']} passed, {tests['failed']} failed{skipped} |"
    groups = evidence["process_groups"]
    if groups:
        yield (f"| `check_process_groups.py` | PyTorch {groups['torch']}, {groups['ranks']} processes | {groups['checks']} checks, "
               f"{groups['failed']} failed; loss within {groups['largest_difference_from_one_gpu']['loss']:.1e} of one GPU; a "
               f"missing rank noticed after {groups['missing_rank_seconds']:.1f} s, of 2 allowed |")
    mpi = evidence.get("mpi")
    if mpi:
        yield (f"| `mpi_example` | {mpi['ranks']} processes under mpirun | losses of all ranks {'equal' if mpi['same_bits'] else 'NOT equal'}, "
               f"{mpi['difference']:.1e} from that of one rank, of {mpi['bound']:.1e} allowed |")
    for where in ("nccl", "loopback"):
        tools = {name.rpartition("-")[2]: entry for name, entry in evidence["sanitizers"].items() if name.startswith(where)}
        if tools:
            text = ", ".join(f"{tool} {errors(entry)}" for tool, entry in tools.items())
            each = ", a process for each rank" if where == "nccl" else ""
            yield f"| errors of compute-sanitizer | {WHERE[where]}{each} | {text} |"
    for name, entry in evidence["fuzz"].items():
        where, _, ranks = name.partition("-")
        yield (f"| fuzzing | {WHERE[where]}{f', {ranks} ranks' if ranks else ''} | {entry['cases']} evaluations of "
               f"{entry['recipes']} recipes, {entry['findings']} findings |")


def errors(entry):
    if entry["errors"] is None:
        return "did not end"
    races = entry.get("races_of_cublaslt")
    return f"{entry['errors']} (and {races} reports of cuBLASLt's own kernels)" if races else str(entry["errors"])


def version(nccl):
    return nccl if isinstance(nccl, str) else f"{nccl // 10000}.{nccl % 10000 // 100}.{nccl % 100}"


def main():
    bench, links, evidence = (json.loads((DATA / f"{name}.json").read_text())
                              for name in ("benchmark", "link_rates", "evidence"))
    tables = {"machine": machine(bench), "times": times(bench), "links": links_table(links),
              "predicted": predicted(bench, links), "runs": runs(evidence)}
    marked_tables.update(FILE, tables, "distributed_tables.py", check="--check" in sys.argv[1:])


if __name__ == "__main__":
    main()
