# SPDX-License-Identifier: Apache-2.0
"""Plans of the CUDA library, one for each combination of layouts and options that was seen."""
from __future__ import annotations

import ctypes
import functools
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
NO_OUTPUTS = [0] * (len(FIELDS) - FIELDS.index("loss"))
PACKED = struct.Struct(f"{len(FIELDS)}Q")  # the bytes of Tensors, in a third of the time: its size, then addresses
AUTO = "fused"  # with gradients, it chooses by the memory budget whether to store the logits
CODES = {torch.bfloat16: library.BF16, torch.float16: library.F16, torch.float32: library.F32}


def _models_of(wanted):
    """The inputs that outputs are laid out as, as a rule; the loss as none."""
    return None, *[at for at, want in zip((0, 1, 4), wanted) if want]


def _maker(shape, strides, dtype, at, given, device) -> tuple:
    """How an output is allocated: by a function, or, in less host time, by empty_like() of an input, and which one. Not
    like an empty input, whose strides mean nothing."""
    if at is not None and given[at] is not None and given[at][:3] == (dtype, shape, strides) and 0 not in shape:
        return None, at
    return functools.partial(torch.empty_strided, shape, strides, dtype=dtype, device=device), at


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
        self._makers = [_maker(*output, at, given, device)
                        for output, at in zip(layout.output_layouts(given, per_token, wanted), _models_of(wanted))]
        # Where the addresses of the outputs go, among those of fljsd_tensors.
        names = "token_loss" if per_token else "loss", *[name for name, want in zip(GRADIENT_FIELDS, wanted) if want]
        self._slots = [FIELDS.index(name) - 1 for name in names]
        self._vectors = any(vector is not None for vector in given[4:])

    def describe(self) -> str:
        return self._library.fljsd_plan_describe(self._handle).decode()

    def run(self, tensors) -> list:
        """Enqueues the pass on the current stream of the tensors' device; returns the outputs."""
        if self._index != _C._cuda_getDevice():
            with torch.cuda.device(self._index):
                return self.run(tensors)
        outputs = [torch.empty_like(tensors[at]) if make is None else make() for make, at in self._makers]
        if self._vectors:  # small enough to be copied where they have gaps; the name keeps the copies alive
            tensors = *tensors[:4], *[None if t is None else t.contiguous() for t in tensors[4:]]
        stream = _C._cuda_getCurrentRawStream(self._index)  # as current_stream(), without an object
        # From the caching allocator, as torch.cuda.caching_allocator_alloc() does it, without making a tensor. It hands
        # the bytes out again only to work that is enqueued on this stream later.
        workspace = _C._cuda_cudaCachingAllocator_raw_alloc(self.workspace_bytes, stream)
        addresses = [0 if t is None else t.data_ptr() for t in tensors]
        addresses += NO_OUTPUTS
        for slot, output in zip(self._slots, outputs):
            addresses[slot] = output.data_ptr()
        status = self._run(self._handle, PACKED.pack(PACKED.size, *addresses), workspace, self.workspace_bytes, stream)
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
