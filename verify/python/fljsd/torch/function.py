# SPDX-License-Identifier: Apache-2.0
"""fused_linear_jsd(): the operator as a function of PyTorch tensors."""
from __future__ import annotations

import torch

from . import kernels, recent
from .derivative import plain_apply
from .operator import OPERATOR


def fused_linear_jsd(student_input, student_weight, teacher_input, teacher_weight, *, beta=0.5, temperature=1.0,
                     student_bias=None, teacher_bias=None, labels=None, ignore_index=-100, valid_vocab=None,
                     reduction="batchmean", stage="auto", memory_budget=None):
    """Generalized Jensen-Shannon divergence of the vocabulary distributions of two models, from their hidden states.

    student_input   [tokens, student_hidden]; teacher_input [tokens, teacher_hidden]
    student_weight  [vocab, student_hidden]; teacher_weight [vocab, teacher_hidden]
    biases          [vocab] or None, of any floating-point dtype
    labels          int64 [tokens] or None; tokens whose label is ignore_index do not count
    beta            0: KL(teacher | student); 1: KL(student | teacher); between: the divergence from the mixture
    temperature     divides the logits of both models; the loss is not multiplied by its square
    valid_vocab     entries at or past it do not exist; None: all do
    reduction       "batchmean": the mean over tokens that count; "sum"; or "none": [tokens], 0 where ignored
    stage           a stage of the CUDA library, or "auto": fused
    memory_budget   bytes of workspace that the stage may use, more is faster; None: what the stage recommends

    Input and weight of one model have one dtype: bf16, fp16 or fp32; on the CPU also fp64. There, the float64 reference
    runs, for tests. The loss is fp32 (fp64 for an fp64 student). Rows of a matrix may lie apart, their elements must be
    adjacent. The teacher is a constant. Gradients are computed in the forward call where the student requires them.
    ValueError, one sentence, for arguments that break these rules; LibraryError for what the library refuses.
    """
    if valid_vocab is not None and valid_vocab < 1:  # 0 is the operator's None
        raise ValueError(f"valid_vocab is {valid_vocab}, but it must be from 1 to vocab, {student_weight.shape[0]}.")
    if memory_budget is not None and memory_budget < 1:
        raise ValueError(f"memory_budget is {memory_budget}, but it must be a positive number of bytes.")
    tensors = student_input, student_weight, teacher_input, teacher_weight, student_bias, teacher_bias, labels
    options = float(beta), float(temperature), ignore_index, valid_vocab or 0, reduction, stage, memory_budget or 0
    known = recent.find(tensors, options)
    if known is None:
        return _unknown(tensors, options)
    run, differentiable = known
    if differentiable:
        return plain_apply()(student_input, student_weight, student_bias, run, tensors)
    return run(tensors)[0]


def _unknown(tensors, options):
    """A call unlike those before, or one that others take part in."""
    device_type = tensors[0].device.type
    autocast = device_type == "cuda" and torch.is_autocast_enabled("cuda")
    if autocast:
        to = torch.get_autocast_dtype("cuda")
        tensors = *[t.to(to) for t in tensors[:4]], *tensors[4:]
    grad = torch.is_grad_enabled()
    wanted = tuple([grad and t is not None and t.requires_grad for t in (tensors[0], tensors[1], tensors[4])])
    prepare = kernels.OF_DEVICE.get(device_type)
    if torch.compiler.is_compiling() or prepare is None or _is_watched(tensors):
        return OPERATOR(*tensors, *options, *wanted)[0]
    run = prepare(tensors, options, wanted)
    if not autocast:  # whose dtype the guards do not know
        recent.remember(tensors, options, (run, True in wanted))
    if True in wanted:
        return plain_apply()(tensors[0], tensors[1], tensors[4], run, tensors)
    return run(tensors)[0]


_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}


def _is_watched(tensors) -> bool:
    """Whether anything but plain tensors and autograd takes part: then the call goes through the dispatcher, as a call
    of an operator that others know. Otherwise it need not, which halves the host time of a call."""
    return (torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None
            or torch._C._get_tracing_state() is not None or torch.autograd._profiler_enabled()
            or not _PLAIN.issuperset(map(type, tensors)))
