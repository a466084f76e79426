# SPDX-License-Identifier: Apache-2.0
"""Time of NCCL's all-gather and all-reduce between the GPUs of torchrun's ranks, for the sizes that distributed plans
exchange; docs/distributed.md predicts from these.

    torchrun --nproc-per-node 2 examples/distributed/link_rates.py --json link_rates.json
"""
import argparse
import json
import os

import torch
import torch.distributed as dist


def median_ms(call, repeats=20):
    times = []
    for _ in range(repeats + 3):
        dist.barrier()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return sorted(times[3:])[repeats // 2]


def main():
    parser = argparse.ArgumentParser(description="Rates of the links between GPUs.")
    parser.add_argument("--json", help="file for the record")
    arguments = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    ranks, found = dist.get_world_size(), []
    for tokens in (1024, 2048, 4096, 8192):
        for name, bytes_ in (("states, forward", 256 * tokens), ("states, with gradients", 448 * tokens)):
            mine = torch.zeros(bytes_, dtype=torch.uint8, device=device)
            all_ranks = torch.empty(ranks * bytes_, dtype=torch.uint8, device=device)
            ms = median_ms(lambda: dist.all_gather_into_tensor(all_ranks, mine))
            found.append({"what": name, "operation": "all_gather", "tokens": tokens, "bytes": bytes_, "ms": ms,
                          "bus_gb_per_s": (ranks - 1) * bytes_ / ms / 1e6})
        sums = torch.zeros(tokens, 4096, device=device)
        ms = median_ms(lambda: dist.all_reduce(sums))
        found.append({"what": "input gradient, hidden 4096", "operation": "all_reduce", "tokens": tokens,
                      "bytes": sums.nbytes, "ms": ms, "bus_gb_per_s": 2 * (ranks - 1) / ranks * sums.nbytes / ms / 1e6})
        # The usual scheme: three sums a token (maximum, denominator, term) in two or three all-reduces of a float each.
        row = torch.zeros(tokens, device=device)
        ms = median_ms(lambda: dist.all_reduce(row))
        found.append({"what": "one float a token", "operation": "all_reduce", "tokens": tokens, "bytes": row.nbytes,
                      "ms": ms, "bus_gb_per_s": 2 * (ranks - 1) / ranks * row.nbytes / ms / 1e6})
    if dist.get_rank() == 0:
        record = {"gpu": torch.cuda.get_device_name(), "ranks": ranks, "nccl": torch.cuda.nccl.version(),
                  "torch": torch.__version__, "results": found}
        for line in found:
            print(line)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(record, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
