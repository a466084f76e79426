# SPDX-License-Identifier: Apache-2.0
"""The operator fljsd::fused_linear_jsd for what watches operators: torch.compile, export, modes, profilers.

The derivative is an autograd.Function behind the dispatcher's Autograd key. torch.library.register_autograd does the same,
but goes through all arguments of the schema in Python at each call: with 17 of them, 110 us of 160.
"""
from __future__ import annotations

import torch

from . import kernels
from .derivative import Differentiable
from .layout import Options, check, layouts

NAME = "fljsd::fused_linear_jsd"
# Inductor must not change strides: the layouts are part of a plan, and a copy of a weight would not go unnoticed.
_TAG = getattr(torch.Tag, "needs_exact_strides", None) or torch.Tag.needs_fixed_stride_order

torch.library.define(
    NAME,
    "(Tensor student_input, Tensor student_weight, Tensor teacher_input, Tensor teacher_weight, Tensor? student_bias, "
    "Tensor? teacher_bias, Tensor? labels, float beta, float temperature, int ignore_index, int valid_vocab, "
    "str reduction, str stage, int memory_budget, bool input_grad, bool weight_grad, bool bias_grad) "
    "-> Tensor[]",  # the loss, and the gradients asked for, in this order
    tags=(_TAG,))
OPERATOR = torch.ops.fljsd.fused_linear_jsd.default


def _parts(arguments):
    """The tensors, the options and the gradients wanted."""
    return arguments[:7], arguments[7:14], arguments[14:]


def _cuda(*arguments):
    tensors, options, wanted = _parts(arguments)
    if tensors[0].device.type != "cuda":
        check(layouts(tensors), Options(*options))  # raises: another tensor brought the call here
    return kernels.cuda(tensors, options, wanted)(tensors)


def _cpu(*arguments):
    tensors, options, wanted = _parts(arguments)
    return kernels.cpu(tensors, options, wanted)(tensors)


torch.library.impl(NAME, "cuda", _cuda)
torch.library.impl(NAME, "cpu", _cpu)


@torch.library.register_fake(NAME)
def _fake(*arguments):
    tensors, options, wanted = _parts(arguments)
    check(layouts(tensors), Options(*options))
    return kernels.outputs(tensors, options, wanted)


def _autograd(*arguments):
    outputs = []

    def run(_):
        with torch._C._AutoDispatchBelowAutograd():
            outputs.extend(OPERATOR(*arguments))
        return outputs

    if not any(arguments[14:]):
        return run(None)
    loss = Differentiable.apply(arguments[0], arguments[1], arguments[4], run, None)
    return [loss, *outputs[1:]]


_library = torch.library.Library("fljsd", "FRAGMENT")
_library.impl("fused_linear_jsd", _autograd, "Autograd")
