# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of both heads cut over the GPUs of torchrun's ranks: the loss and gradients, against one GPU.

    pip install ./verify/python && torchrun --nproc-per-node 2 examples/distributed/torchrun_example.py

Every rank draws the same tensors and keeps its shard. Rank 0 compares with the whole on its own GPU and prints.
"""
import argparse
import json
import os

import torch
import torch.distributed as dist
from fljsd.torch import fused_linear_jsd
from fljsd.torch_distributed import parallel_linear_jsd


def ragged(vocab, ranks):
    """Ends of consecutive shards, each an eighth larger than the one before."""
    sizes = [8 + rank for rank in range(ranks)]
    return [vocab * sum(sizes[:rank + 1]) // sum(sizes) for rank in range(ranks)]


def main():
    parser = argparse.ArgumentParser(description="Vocab-parallel loss on all GPUs.")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=32001)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--json", help="file for what rank 0 found")
    arguments = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same numbers on every rank
    tokens, vocab, hidden = arguments.tokens, arguments.vocab, arguments.hidden
    draw = lambda *shape: torch.randn(*shape, device=device).bfloat16()
    student_input, teacher_input = draw(tokens, hidden), draw(tokens, hidden)
    student_weight, teacher_weight = draw(vocab, hidden) * 0.05, draw(vocab, hidden) * 0.05
    labels = torch.arange(tokens, device=device)
    labels[::3] = -100
    begin, end = [0, *ragged(vocab, ranks)][rank:rank + 2]

    x = student_input.clone().requires_grad_()
    w = student_weight[begin:end].clone().requires_grad_()
    loss = parallel_linear_jsd(x, w, teacher_input, teacher_weight[begin:end], vocab_group=dist.group.WORLD, beta=0.3,
                               labels=labels)
    loss.backward()

    whole_x, whole_w = student_input.clone().requires_grad_(), student_weight.clone().requires_grad_()
    whole = fused_linear_jsd(whole_x, whole_w, teacher_input, teacher_weight, beta=0.3, labels=labels)
    whole.backward()

    def apart(a, b):
        return ((a.float() - b.float()).norm() / b.float().norm()).item()

    mine = torch.stack([loss.detach().double(), torch.tensor(apart(x.grad, whole_x.grad), device=device),
                        torch.tensor(apart(w.grad, whole_w.grad[begin:end]), device=device)])
    all_ranks = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(all_ranks, mine)
    if rank == 0:
        found = {"ranks": ranks, "loss_one_gpu": whole.item(), "loss_by_rank": [r[0].item() for r in all_ranks],
                 "input_grad_relative_difference": [r[1].item() for r in all_ranks],
                 "weight_grad_relative_difference": [r[2].item() for r in all_ranks]}
        print(json.dumps(found))
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(found, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
