# SPDX-License-Identifier: Apache-2.0
"""Fused linear + generalized Jensen-Shannon divergence for PyTorch process groups: the vocabulary, the tokens or both
cut over GPUs.

    from fljsd.torch_distributed import parallel_linear_jsd
    loss = parallel_linear_jsd(student_input, student_weight_shard, teacher_input, teacher_weight_shard,
                               vocab_group=dist.group.WORLD, beta=0.5)

docs/distributed.md says what travels. Communicators are NCCL's, of the library that PyTorch has loaded; their ids travel
over the process groups.
"""
from __future__ import annotations

import functools
from collections import OrderedDict

import torch
import torch.distributed as dist

from . import distributed
from .library import LibraryError
from .torch import layout
from .torch.derivative import plain_apply
from .torch.plan import GRADIENT_FIELDS, config_fields

_latest = None  # the plan of the latest call, and its device
_MOST = 32  # kinds of plans for one pair of groups, and plans of a kind


@functools.lru_cache(maxsize=None)
def _communicator(group, timeout_ms: int):
    box = [None, ""]
    if dist.get_rank(group) == 0:
        try:
            box[0] = distributed.new_id()
        except LibraryError as error:  # told to the others, who would wait for as long as the group does
            box[1] = str(error)
    dist.broadcast_object_list(box, src=dist.get_global_rank(group, 0), group=group)
    if box[0] is None:
        raise LibraryError(f"Rank 0 of the group: {box[1]}")
    return distributed.Communicator(box[0], dist.get_world_size(group), dist.get_rank(group), timeout_ms)


class _Plans:
    """The plans of one pair of groups. Making one is an exchange, so ranks must need one at the same time: those of a
    vocabulary group do, because they see the same tokens. Those of a token group see different numbers of tokens, and one
    of them may need a plan for a number that is new to it while another has one. So they compare the first plan of every
    kind, which is of what they have alike, and no other; and no other pair of groups can push a plan out."""

    def __init__(self, groups, timeout_ms):
        self._communicators = [None if group is None else _communicator(group, timeout_ms) for group in groups]
        self._kinds = OrderedDict()

    def find(self, given, options, wanted):
        """given: layout.layouts() of the tensors, on the current device."""
        kind = options, wanted, given[1][1], given[3][1]
        plans = self._kinds.get(kind, OrderedDict())
        plan = plans.get(given)
        if plan is None:
            fields = config_fields(layout.by_name(given), layout.Options(*options), wanted)
            fields["device"] = torch.cuda.current_device()
            plan = distributed.Plan(fields, *self._communicators, tokens_compared=kind in self._kinds)
        for cache, key, value in ((self._kinds, kind, plans), (plans, given, plan)):
            cache[key] = value
            cache.move_to_end(key)
            if len(cache) > _MOST:
                cache.popitem(last=False)
        return plan


@functools.lru_cache(maxsize=None)
def _plans(groups, timeout_ms):
    return _Plans(groups, timeout_ms)


def _run(options, wanted, groups, timeout_ms, tensors):
    """The loss, and the gradients wanted of student_input, student_weight and student_bias."""
    global _latest
    tensors = *tensors[:4], *(None if t is None else t.contiguous() for t in tensors[4:])
    given, device = layout.layouts(tensors), tensors[0].device
    with torch.cuda.device(device):
        plan = _plans(groups, timeout_ms).find(given, options, wanted)
        _latest = plan, device
        outputs = [torch.empty_strided(shape, strides, dtype=dtype, device=device)
                   for shape, strides, dtype in layout.output_layouts(given, False, wanted)]
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=device)
        names = *layout.NAMES, "loss", *(name for name, want in zip(GRADIENT_FIELDS, wanted) if want)
        addresses = {name: t.data_ptr() for name, t in zip(names, (*tensors, *outputs)) if t is not None}
        plan.run(addresses, workspace.data_ptr(), torch.cuda.current_stream(device).cuda_stream)
    return outputs


def parallel_linear_jsd(student_input, student_weight, teacher_input, teacher_weight, *, vocab_group=None,
                        token_group=None, beta=0.5, temperature=1.0, student_bias=None, teacher_bias=None, labels=None,
                        ignore_index=-100, valid_vocab=None, reduction="batchmean", timeout=60.0):
    """The loss over all tokens of all ranks, a scalar in fp32 with the same bits on every rank.

    vocab_group   ranks with the same tokens and consecutive shards of both weights (and biases), rank 0 the first rows;
                  None: the vocabulary is not cut
    token_group   ranks with the same shard and tokens of their own, perhaps none; None: the tokens are not cut
    valid_vocab   counts entries of the whole vocabulary
    reduction     "batchmean", over all tokens that count on any rank, or "sum"
    timeout       seconds to wait for a rank before LibraryError; a group's communicator that failed is of no further use:
                  go on with new groups

    Everything else as fljsd.torch.fused_linear_jsd. Collective: every rank calls it in the same order with the same
    options. Gradients: that of student_input is complete on every rank of vocab_group, so the layer below must not sum it
    over that group again. Those of student_weight and student_bias are of this rank's shard and tokens: to be summed over
    token_group. (A wrapper that averages gradients over N ranks, as DistributedDataParallel does, has them right when the
    loss is multiplied by N.) The call enqueues its work; wait() waits for it, and for no longer than it is told to.
    """
    if reduction not in ("batchmean", "sum"):
        raise ValueError(f"reduction is {reduction!r}, but it must be 'batchmean' or 'sum'.")
    if valid_vocab is not None and valid_vocab < 1:
        raise ValueError(f"valid_vocab is {valid_vocab}, but it must be 1 or more.")
    for name, group in (("vocab_group", vocab_group), ("token_group", token_group)):
        if group is not None and dist.get_rank(group) < 0:
            raise ValueError(f"{name} does not have this process among its ranks, but it must.")
    tensors = student_input, student_weight, teacher_input, teacher_weight, student_bias, teacher_bias, labels
    options = float(beta), float(temperature), ignore_index, valid_vocab or 0, reduction, "chunked-vocab", 0
    layout.check(layout.layouts(tensors), layout.Options(*options)._replace(valid_vocab=0))
    grad = torch.is_grad_enabled()
    wanted = (grad and student_input.requires_grad, grad and student_weight.requires_grad,
              grad and student_bias is not None and student_bias.requires_grad)
    run = functools.partial(_run, options, wanted, (vocab_group, token_group), round(timeout * 1000))
    if any(wanted):
        return plain_apply()(student_input, student_weight, student_bias, run, tensors)
    return run(tensors)[0]


def wait(timeout=60.0):
    """Waits until the current stream of the latest call's device has done what was enqueued, at most `timeout` seconds for a rank that does not come
    to the latest call. LibraryError then, and the communicators of that call are of no further use."""
    if _latest is not None:
        plan, device = _latest
        with torch.cuda.device(device):
            plan.wait(torch.cuda.current_stream(device).cuda_stream, round(timeout * 1000))
