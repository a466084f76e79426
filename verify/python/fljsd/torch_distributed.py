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

import ctypes
import functools
from ctypes import c_int32, c_int64, c_uint64, c_void_p

import torch
import torch.distributed as dist

from . import library
from .library import Config, Tensors

_CODES = {torch.bfloat16: library.BF16, torch.float16: library.F16, torch.float32: library.F32}
_ID_BYTES = 128


class Ranks(ctypes.Structure):
    """fljsd_ranks."""

    _fields_ = [("struct_size", c_uint64), ("vocab", c_void_p), ("tokens", c_void_p),
                ("sum_weight_gradients", c_int32), ("reserved", c_int32)]


_SIGNATURES = {
    "fljsd_distributed_available": [ctypes.POINTER(c_int32)],
    "fljsd_communicator_id": [c_void_p],
    "fljsd_communicator_create": [c_void_p, c_int32, c_int32, c_int64, ctypes.POINTER(c_void_p)],
    "fljsd_plan_create_distributed": [ctypes.POINTER(Config), ctypes.POINTER(Ranks), ctypes.POINTER(c_void_p)],
    "fljsd_plan_wait": [c_void_p, c_void_p, c_int64],
}


@functools.lru_cache(maxsize=None)
def _load():
    loaded = library.load()
    for name, arguments in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = c_int32, arguments
    return loaded


@functools.lru_cache(maxsize=None)
def _communicator(group, timeout_ms: int):
    """This rank's end of a communicator of the group's ranks, for the current device. Kept until the process ends."""
    load, box = _load(), [None]
    if dist.get_rank(group) == 0:
        made = ctypes.create_string_buffer(_ID_BYTES)
        library.check(load.fljsd_communicator_id(made))
        box = [made.raw]
    dist.broadcast_object_list(box, src=dist.get_global_rank(group, 0), group=group)
    handle = c_void_p()
    library.check(load.fljsd_communicator_create(box[0], dist.get_world_size(group), dist.get_rank(group), timeout_ms,
                                                 handle))
    return handle


@functools.lru_cache(maxsize=32)
def _plan(shapes, lds, dtypes, options, gradients, groups, timeout_ms, device):
    """An fljsd_plan and the bytes of its workspace; every rank makes its plans in the same order."""
    load, config = _load(), Config()
    library.check(load.fljsd_config_init(config, ctypes.sizeof(config)))
    (config.tokens, config.student_hidden), (config.vocab, config.teacher_hidden) = shapes
    (config.student_input_ld, config.student_weight_ld, config.teacher_input_ld, config.teacher_weight_ld) = lds
    (config.student_dtype, config.teacher_dtype, config.student_bias_dtype, config.teacher_bias_dtype) = (
        library.ABSENT if dtype is None else _CODES[dtype] for dtype in dtypes)
    config.beta, config.temperature, config.ignore_index, config.valid_vocab, reduction, config.has_labels = options
    config.reduction = library.REDUCTIONS[reduction]
    config.gradients = gradients
    config.device = device
    vocab, tokens = (None if group is None else _communicator(group, timeout_ms) for group in groups)
    ranks = Ranks(ctypes.sizeof(Ranks), vocab, tokens, 0, 0)
    plan, size = c_void_p(), c_uint64()
    library.check(load.fljsd_plan_create_distributed(config, ranks, plan))
    run_pass = library.FORWARD_BACKWARD if gradients else library.FORWARD
    library.check(load.fljsd_plan_workspace_bytes(plan, run_pass, size))
    return plan, size.value


def _run(tensors, options, wanted, groups, timeout_ms):
    """The loss, and the gradients of student_input, student_weight and student_bias or None."""
    load = _load()
    matrices, (student_bias, teacher_bias, labels) = tensors[:4], tensors[4:]
    device = matrices[0].device
    for matrix in matrices:
        if matrix.dim() != 2 or matrix.stride(1) != 1 and matrix.shape[1] > 1:
            raise ValueError(f"a matrix has strides {list(matrix.stride())}, but elements of a row must be adjacent: pass "
                             "it through contiguous().")
    biases = [None if bias is None else bias.contiguous() for bias in (student_bias, teacher_bias)]
    labels = None if labels is None else labels.contiguous()
    lds = tuple(matrix.stride(0) if matrix.shape[0] > 1 else 0 for matrix in matrices)
    dtypes = (matrices[0].dtype, matrices[2].dtype, *(None if bias is None else bias.dtype for bias in biases))
    gradients = sum(flag for flag, want in zip((library.INPUT_GRAD, library.WEIGHT_GRAD, library.BIAS_GRAD), wanted)
                    if want)
    shapes = tuple(matrices[0].shape), (matrices[1].shape[0], matrices[2].shape[1])
    with torch.cuda.device(device):
        plan, bytes_ = _plan(shapes, lds, dtypes, (*options, labels is not None), gradients, groups, timeout_ms,
                             device.index)
        loss = torch.empty((), dtype=torch.float32, device=device)
        grads = [torch.empty(matrices[0].shape, dtype=matrices[0].dtype, device=device) if wanted[0] else None,
                 torch.empty(matrices[1].shape, dtype=matrices[1].dtype, device=device) if wanted[1] else None,
                 torch.empty(matrices[1].shape[0], dtype=torch.float32, device=device) if wanted[2] else None]
        workspace = torch.empty(bytes_, dtype=torch.uint8, device=device)
        pointers = [None if t is None else t.data_ptr() for t in (*matrices, *biases, labels, loss, None, *grads)]
        run = load.fljsd_forward_backward if gradients else load.fljsd_forward
        stream = torch.cuda.current_stream(device)
        library.check(run(plan, Tensors(ctypes.sizeof(Tensors), *pointers), workspace.data_ptr(), bytes_,
                          stream.cuda_stream))
    return loss, grads


class _ParallelLinearJSD(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student_input, student_weight, student_bias, rest, options, groups, timeout_ms):
        teacher_input, teacher_weight, teacher_bias, labels = rest
        wanted = tuple(ctx.needs_input_grad[:3])
        loss, grads = _run((student_input, student_weight, teacher_input, teacher_weight, student_bias, teacher_bias,
                            labels), options, wanted, groups, timeout_ms)
        ctx.save_for_backward(*grads)
        return loss

    @staticmethod
    def backward(ctx, upstream):
        return *(None if grad is None else grad * upstream.to(grad.dtype) for grad in ctx.saved_tensors), *[None] * 4


def parallel_linear_jsd(student_input, student_weight, teacher_input, teacher_weight, *, vocab_group=None,
                        token_group=None, beta=0.5, temperature=1.0, student_bias=None, teacher_bias=None, labels=None,
                        ignore_index=-100, valid_vocab=None, reduction="batchmean", timeout=60.0):
    """The loss over all tokens of all ranks, a scalar in fp32 with the same bits on every rank.

    vocab_group   ranks with the same tokens and consecutive shards of both weights (and biases), rank 0 the first rows;
                  None: the vocabulary is not cut
    token_group   ranks with the same shard and tokens of their own; None: the tokens are not cut
    valid_vocab   counts entries of the whole vocabulary
    reduction     "batchmean", over all tokens that count on any rank, or "sum"
    timeout       seconds to wait for a rank before LibraryError; a failed communicator is of no further use

    Everything else as fljsd.torch.fused_linear_jsd. Collective: every rank calls it in the same order with the same
    options. Gradients: that of student_input is complete on every rank of vocab_group, so the layer below must not sum it
    over that group again. Those of student_weight and student_bias are of this rank's shard and tokens: to be summed over
    token_group. (A wrapper that averages gradients over N ranks, as DistributedDataParallel does, has them right when the
    loss is multiplied by N.)
    """
    if reduction not in ("batchmean", "sum"):
        raise ValueError(f"reduction is {reduction!r}, but it must be 'batchmean' or 'sum'.")
    if valid_vocab is not None and valid_vocab < 1:
        raise ValueError(f"valid_vocab is {valid_vocab}, but it must be 1 or more.")
    options = float(beta), float(temperature), ignore_index, valid_vocab or 0, reduction
    return _ParallelLinearJSD.apply(student_input, student_weight, student_bias,
                                    (teacher_input, teacher_weight, teacher_bias, labels), options,
                                    (vocab_group, token_group), round(timeout * 1000))

