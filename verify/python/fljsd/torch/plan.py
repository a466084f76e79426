# SPDX-License-Identifier: Apache-2.0
"""Plans of the CUDA library, one for each combination of layouts and options that was seen."""
from __future__ import annotations

import ctypes
import functools
import sys

import torch

from . import layout, library
from .library import Config, Tensors

CODES = {torch.bfloat16: library.BF16, torch.float16: library.F16, torch.float32: library.F32}


def kept_dtype(dtype: torch.dtype) -> torch.dtype:
    """In which gradients of this dtype wait for the upstream gradient. A loss scaler brings small fp16 gradients into
    range by the upstream gradient, so they must not have been rounded to fp16 before."""
    return torch.float32 if dtype == torch.float16 else dtype


def _leading(matrix) -> int:
    return matrix.strides[0] if matrix.shape[0] > 1 else 0


class Plan:
    """An fljsd_plan and the size of its workspace. It does not change: threads and streams may share it."""

    def __init__(self, given, options, gradients):
        options = layout.Options(*options)
        layout.check(given, options)
        self._library = load = library.load()
        config = Config()
        library.check(load.fljsd_config_init(config, ctypes.sizeof(config)))
        at = layout.by_name(given)
        config.tokens, config.student_hidden = at["student_input"].shape
        config.vocab, config.teacher_hidden = at["teacher_weight"].shape
        for name in layout.MATRICES:
            setattr(config, name + "_ld", _leading(at[name]))
        for model in ("student", "teacher"):
            setattr(config, model + "_dtype", CODES[at[model + "_input"].dtype])
            bias = at[model + "_bias"]
            setattr(config, model + "_bias_dtype", library.ABSENT if bias is None else CODES[bias.dtype])
        config.gradient_dtype = CODES[kept_dtype(at["student_input"].dtype)]
        config.has_labels = at["labels"] is not None
        config.ignore_index, config.valid_vocab = options.ignore_index, options.valid_vocab
        config.beta, config.temperature = options.beta, options.temperature
        config.reduction, config.gradients = library.REDUCTIONS[options.reduction], gradients
        stage = options.stage
        if stage == "auto":  # `fused` would do the same, but set room aside for a forward pass alone as well
            stage = "chunked-vocab" if gradients else "fused"
        config.stage = stage.encode()
        config.memory_budget = options.memory_budget
        config.device = at["student_input"].device.index
        self._handle = ctypes.c_void_p()
        library.check(load.fljsd_plan_create(config, self._handle))
        run_pass = library.FORWARD_BACKWARD if gradients else library.FORWARD
        size = ctypes.c_uint64()
        library.check(load.fljsd_plan_workspace_bytes(self._handle, run_pass, size))
        self.workspace_bytes = size.value
        self._run = load.fljsd_forward_backward if gradients else load.fljsd_forward

    def describe(self) -> str:
        return self._library.fljsd_plan_describe(self._handle).decode()

    def run(self, tensors: Tensors, device: torch.device) -> None:
        """Enqueues the pass on the current stream of the device, which must be the current one."""
        workspace = torch.empty(self.workspace_bytes, dtype=torch.uint8, device=device)
        stream = torch._C._cuda_getCurrentRawStream(device.index)  # as current_stream(), without an object
        # The allocator hands the workspace out again only to work that is enqueued on this stream later.
        library.check(self._run(self._handle, tensors, workspace.data_ptr(), self.workspace_bytes, stream))

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle and not sys.is_finalizing():  # CUDA may be gone before the interpreter is
            self._library.fljsd_plan_destroy(handle)


@functools.lru_cache(maxsize=128)
def plan_for(given: tuple, options: tuple, gradients: int) -> Plan:
    """`given`: layout.layouts() of the tensors, all on one CUDA device, which is the current one; options: the fields of
    layout.Options."""
    return Plan(given, options, gradients)
