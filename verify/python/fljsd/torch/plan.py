# SPDX-License-Identifier: Apache-2.0
"""Plans of the CUDA library, one for each combination of layouts and options that was seen."""
from __future__ import annotations

import ctypes
import functools
import operator
import struct
import sys

import torch
from torch import _C

from .. import library
from ..library import Config, Tensors
from . import layout

FIELDS = [name for name, _ in Tensors._fields_]
GRADIENT_FIELDS = "student_input_grad", "student_weight_grad", "student_bias_grad"
GRADIENTS = library.INPUT_GRAD, library.WEIGHT_GRAD, library.BIAS_GRAD
SIZE = ctypes.sizeof(Tensors)
address = torch.Tensor.data_ptr
AUTO = "fused"  # with gradients, it chooses by the memory budget whether to store the logits
CODES = {torch.bfloat16: library.BF16, torch.float16: library.F16, torch.float32: library.F32}


def config_fields(at, options, wanted) -> dict:
    """Fields of fljsd_config that follow from the tensors, layout.by_name() of them, layout.Options, and whether the
    gradients of student_input, student_weight and student_bias are wanted."""
    tokens, student_hidden = at["student_input"].shape
    vocab, teacher_hidden = at["teacher_weight"].shape
    fields = dict(
        tokens=tokens, vocab=vocab, student_hidden=student_hidden, teacher_hidden=teacher_hidden,
        gradient_dtype=CODES[layout.kept_dtype(at["student_input"].dtype)], has_labels=at["labels"] is not None,
        ignore_index=options.ignore_index, valid_vocab=options.valid_vocab, beta=options.beta,
        temperature=options.temperature, reduction=library.REDUCTIONS[options.reduction],
        gradients=sum(flag for flag, want in zip(GRADIENTS, wanted) if want))
    for name in layout.MATRICES:
        fields[name + "_ld"] = at[name].strides[0] if at[name].shape[0] > 1 else 0
    for model in ("student", "teacher"):
        bias = at[model + "_bias"]
        fields[model + "_dtype"] = CODES[at[model + "_input"].dtype]
        fields[model + "_bias_dtype"] = library.ABSENT if bias is None else CODES[bias.dtype]
    return fields


class Plan:
    """An fljsd_plan and the size of its workspace. It does not change: threads and streams may share it."""

    def __init__(self, given, options, wanted):
        options = layout.Options(*options)
        layout.check(given, options)
        self._library = load = library.load()
        config = Config()
        library.check(load.fljsd_config_init(config, ctypes.sizeof(config)))
        at = layout.by_name(given)
        for name, value in config_fields(at, options, wanted).items():
            setattr(config, name, value)
        device = at["student_input"].device
        self._index = config.device = device.index
        config.memory_budget = options.memory_budget
        config.stage = (AUTO if options.stage == "auto" else options.stage).encode()
        self._handle = ctypes.c_void_p()
        with torch.cuda.device(self._index):
            library.check(load.fljsd_plan_create(config, self._handle))
        run_pass = library.FORWARD_BACKWARD if config.gradients else library.FORWARD
        size = ctypes.c_uint64()
        library.check(load.fljsd_plan_workspace_bytes(self._handle, run_pass, size))
        self.workspace_bytes = size.value
        self._run = load.fljsd_forward_backward if config.gradients else load.fljsd_forward
        per_token = options.reduction == "none"
        self._makers = [functools.partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)
                        for shape, strides, dtype in layout.output_layouts(given, per_token, wanted)]
        outputs = "token_loss" if per_token else "loss", *[n for n, want in zip(GRADIENT_FIELDS, wanted) if want]
        there = [name for name, fields in zip(layout.NAMES, given) if fields is not None]
        self._vectors = len(there) > 4
        self._present = operator.itemgetter(*map(layout.NAMES.index, there))
        # The bytes of Tensors from its size and the addresses that are not null, in a third of the time that it takes.
        fields = {FIELDS[0], *there, *outputs}
        self._pack = struct.Struct("".join(["Q" if name in fields else "8x" for name in FIELDS])).pack

    def describe(self) -> str:
        return self._library.fljsd_plan_describe(self._handle).decode()

    def run(self, tensors) -> list:
        """Enqueues the pass on the current stream of the tensors' device; returns the outputs."""
        if self._index != _C._cuda_getDevice():
            with torch.cuda.device(self._index):
                return self.run(tensors)
        outputs = [make() for make in self._makers]
        tensors = self._present(tensors)
        if self._vectors:  # small enough to be copied where they have gaps; the name keeps the copies alive
            tensors = *tensors[:4], *[t.contiguous() for t in tensors[4:]]
        stream = _C._cuda_getCurrentRawStream(self._index)  # as current_stream(), without an object
        # From the caching allocator, as torch.cuda.caching_allocator_alloc() does it, without making a tensor. It hands
        # the bytes out again only to work that is enqueued on this stream later.
        workspace = _C._cuda_cudaCachingAllocator_raw_alloc(self.workspace_bytes, stream)
        packed = self._pack(SIZE, *map(address, tensors), *map(address, outputs))
        status = self._run(self._handle, packed, workspace, self.workspace_bytes, stream)
        _C._cuda_cudaCachingAllocator_raw_delete(workspace)
        if status != 0:
            library.check(status)
        return outputs

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle and sys is not None and not sys.is_finalizing():  # CUDA may be gone before the interpreter is
            self._library.fljsd_plan_destroy(handle)


@functools.lru_cache(maxsize=128)
def plan_for(given: tuple, options: tuple, wanted: tuple) -> Plan:
    """`given`: layout.layouts() of the tensors, on a CUDA device; options: the fields of layout.Options; wanted: whether
    gradients of student_input, student_weight and student_bias are."""
    return Plan(given, options, wanted)
