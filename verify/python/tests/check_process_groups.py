# SPDX-License-Identifier: Apache-2.0
"""parallel_linear_jsd over process groups, a process and a GPU for each rank, against the operator on one GPU.

    torchrun --nproc-per-node 2 verify/python/tests/check_process_groups.py [--json FILE]

Vocabulary cut, tokens cut, and with four ranks or more both; then a rank that does not come. Exit status 1 if anything
is not as it must be. Not a test of CTest: that would need torchrun and two GPUs.
"""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist
from fljsd.torch import LibraryError, fused_linear_jsd
from fljsd.torch_distributed import parallel_linear_jsd, wait

# Inputs are such that logits are exact in fp32 however they are summed. So losses differ by how statistics are put
# together: each side's sums err by 1.5e-6 of a token's loss or of 1 (cuda/one_pass_moments.cuh).
LOSS_BOUND = 3e-6
# Each side rounds dlogits and gradients to bf16 once, 2^-9 each. A gradient multiplied by two ranks is off by 1.
GRADIENT_BOUND = 2.0**-7

CASES = (
    dict(beta=0.5),
    dict(beta=0.3, labels=True, student_bias=True),
    dict(beta=0.0, temperature=2.0, teacher_bias=True),
    dict(beta=1.0, labels=True, reduction="sum"),
    dict(beta=0.7, valid_vocab=3001, student_bias=True, teacher_bias=True),
    dict(beta=0.5, valid_vocab=5),  # past the first rows of the first shard nothing exists
    dict(beta=0.2, dtype=torch.float16),
    dict(beta=0.2, dtype=torch.float32),
)


def whole(tokens=96, vocab=4001, hidden=256, dtype=torch.bfloat16, **given):
    """All tensors, the same on every rank; options of the operator; biases and labels where the case has them."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(most, scale, *shape):
        return (torch.randint(-most, most + 1, shape, generator=generator, device="cuda") / scale).to(dtype)

    matrices = [draw(*size) for size in 2 * ((8, 8, tokens, hidden), (4, 16, vocab, hidden))]
    for name in ("student_bias", "teacher_bias"):
        given[name] = draw(8, 8, vocab) if given.get(name) else None
    labels = torch.arange(tokens, device="cuda")
    labels[::3] = labels[: tokens // 2] = -100  # with two token parts, nobody of the first counts
    given["labels"] = labels if given.get("labels") else None
    return matrices, given


def cut(total, ranks):
    """Ends of consecutive parts, each larger than the one before."""
    sizes = [2 + rank for rank in range(ranks)]
    return [total * sum(sizes[:rank]) // sum(sizes) for rank in range(ranks + 1)]


def gradients_of(loss, *leaves):
    kept = [leaf for leaf in leaves if leaf is not None]
    grads = iter(torch.autograd.grad(loss, kept))
    return [None if leaf is None else next(grads) for leaf in leaves]


def apart(a, b):
    if a.numel() == 0:
        return 0.0
    a, b = a.double(), b.double()
    norm = b.norm()
    return ((a - b).norm() / norm).item() if norm > 0 else a.norm().item()


def leaf(tensor):
    return None if tensor is None else tensor.detach().clone().requires_grad_()


class Grid:
    """Rank r has shard r mod `vocab` and tokens r div `vocab`."""

    def __init__(self, vocab, tokens):
        self.vocab, self.tokens, rank = vocab, tokens, dist.get_rank()
        self.shard, self.part = rank % vocab, rank // vocab
        self.groups = {}
        for name, of_mine, count, members in (
                ("vocab_group", self.part, tokens, lambda i: [i * vocab + v for v in range(vocab)]),
                ("token_group", self.shard, vocab, lambda i: [t * vocab + i for t in range(tokens)])):
            made = [dist.new_group(members(i)) for i in range(count)]  # everybody makes all of them
            self.groups[name] = made[of_mine] if len(members(0)) > 1 else None

    def name(self):
        return f"{self.vocab} by {self.tokens}"

    def check(self, **case):
        """What differs from one GPU: the loss, the gradients, and whether ranks that must have the same bits do."""
        matrices, given = whole(**case)
        first, last = cut(matrices[1].shape[0], self.vocab)[self.shard:self.shard + 2]
        begin, end = cut(matrices[0].shape[0], self.tokens)[self.part:self.part + 2]
        x, w, bias = leaf(matrices[0][begin:end]), leaf(matrices[1][first:last]), given["student_bias"]
        mine = dict(given, student_bias=leaf(None if bias is None else bias[first:last]),
                    teacher_bias=None if given["teacher_bias"] is None else given["teacher_bias"][first:last],
                    labels=None if given["labels"] is None else given["labels"][begin:end])
        loss = parallel_linear_jsd(x, w, matrices[2][begin:end], matrices[3][first:last], **self.groups, **mine)
        wait(30)
        grads = gradients_of(loss, x, w, mine["student_bias"])
        with torch.no_grad():
            forward = parallel_linear_jsd(x, w, matrices[2][begin:end], matrices[3][first:last], **self.groups, **mine)
        wait(30)
        for grad in grads[1:]:  # parts of tokens are to be summed over those who have the same shard
            if grad is not None and self.groups["token_group"] is not None:
                dist.all_reduce(grad, group=self.groups["token_group"])

        one_x, one_w, one_bias = leaf(matrices[0]), leaf(matrices[1]), leaf(bias)
        one = fused_linear_jsd(one_x, one_w, *matrices[2:], **dict(given, student_bias=one_bias))
        wanted = gradients_of(one, one_x, one_w, one_bias)
        unit = max(1.0, abs(one.item()))
        if given.get("reduction") == "sum":
            unit = max(unit, float((given["labels"] != given.get("ignore_index", -100)).sum()))
        found = {"loss": larger(abs(value.item() - one.item()) for value in (loss, forward)) / unit,
                 "input": apart(grads[0], wanted[0][begin:end]), "weight": apart(grads[1], wanted[1][first:last])}
        if bias is not None:
            found["bias"] = apart(grads[2], wanted[2][first:last])
        bits = [None] * dist.get_world_size()
        dist.all_gather_object(bits, (self.part, loss.item(), forward.item(), grads[0].double().sum().item()))
        same = all(b[1:3] == bits[0][1:3] for b in bits) and all(b[3] == c[3] for b in bits for c in bits if b[0] == c[0])
        return found, same


def larger(values):
    """The largest; NaN if one of them is, which max() forgets."""
    values = list(values)
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def missing_rank():
    """The last rank skips a call: the others must hear of it, in about the time that they allow."""
    group = dist.new_group(list(range(dist.get_world_size())))  # communicators of its own, which end here
    matrices, _ = whole()
    seconds, heard = 0.0, True
    parallel_linear_jsd(*matrices, vocab_group=group)
    wait(30)
    if dist.get_rank() != dist.get_world_size() - 1:
        began = time.monotonic()
        try:
            parallel_linear_jsd(*matrices, vocab_group=group, timeout=60)
            wait(2)
            heard = False
        except LibraryError as error:
            print(f"rank {dist.get_rank()}: {error}", flush=True)
        torch.cuda.synchronize()  # the GPU is free again
        seconds = time.monotonic() - began
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, (heard and seconds < 30, seconds))
    return all(fine for fine, _ in everybody), max(seconds for _, seconds in everybody)


def main():
    parser = argparse.ArgumentParser(description="Process groups against one GPU.")
    parser.add_argument("--json", help="file for what was found")
    arguments = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    grids = [Grid(ranks, 1), Grid(1, ranks)] + ([Grid(ranks // 2, 2)] if ranks >= 4 and ranks % 2 == 0 else [])
    record = {"ranks": ranks, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "checks": 0, "failed": [],
              "largest": {}, "largest_of_case": {}}
    for grid in grids:
        for case in CASES:
            found, same = grid.check(**case)
            everybody = [None] * ranks
            dist.all_gather_object(everybody, (found, same))
            name = f"{grid.name()} {case}"
            record["checks"] += 1
            for theirs, (values, bits) in enumerate(everybody):
                for what, value in values.items():
                    for largest in (record["largest"], record["largest_of_case"].setdefault(name, {})):
                        largest[what] = larger((value, largest.get(what, 0.0)))
                    if not value <= (LOSS_BOUND if what == "loss" else GRADIENT_BOUND):
                        record["failed"].append(f"{name}: rank {theirs}: {what} is off by {value}")
                if not bits:
                    record["failed"].append(f"{name}: ranks have other bits")
    if ranks > 1:
        fine, seconds = missing_rank()
        record["checks"] += 1
        record["missing_rank_seconds"] = seconds
        if not fine:
            record["failed"].append("a missing rank was not noticed")
    if rank == 0:
        print(json.dumps(record))
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(record, file, indent=1)
    dist.destroy_process_group()
    return 1 if record["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
