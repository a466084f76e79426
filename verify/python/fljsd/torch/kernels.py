# SPDX-License-Identifier: Apache-2.0
"""What computes: the CUDA library on CUDA tensors, the float64 reference on CPU tensors.

Each function takes the tensors of layout.NAMES, the options of layout.Options as a tuple, and whether the gradients of
student_input, student_weight and student_bias are wanted. It checks these and returns a function of such tensors, for them
or others laid out alike, whose result is a list: the loss, and the gradients wanted, in that order. Gradients are computed
in the same pass over the vocabulary as the loss.
"""
from __future__ import annotations

import functools

import torch

from ..case import Case
from ..truth import truth
from .layout import NAMES, Options, check, layouts, output_layouts
from .plan import plan_for

_REDUCTION = Options._fields.index("reduction")


def is_per_token(options: tuple) -> bool:
    return options[_REDUCTION] == "none"


def outputs(tensors, options: tuple, wanted) -> list:
    """Uninitialised outputs."""
    device = tensors[0].device
    return [torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for shape, strides, dtype in output_layouts(layouts(tensors), is_per_token(options), wanted)]


def cuda(tensors, options: tuple, wanted):
    return plan_for(layouts(tensors), options, wanted).run


def cpu(tensors, options: tuple, wanted):
    """Stage and memory budget mean nothing here."""
    check(layouts(tensors), Options(*options))
    return functools.partial(_reference, options, wanted)


def _reference(options: tuple, wanted, tensors) -> list:
    """Rounded once to the dtype of each output."""
    named = Options(*options)
    given = dict(zip(NAMES, tensors))
    case = Case(*[given.pop(name) for name in NAMES[:4]], **given, beta=named.beta, temperature=named.temperature,
                ignore_index=named.ignore_index, reduction=named.reduction, valid_vocab=named.valid_vocab or None)
    made = outputs(tensors, options, wanted)
    answer = truth(case, grad=any(wanted))
    grads = answer.student_input_grad, answer.student_weight_grad, answer.student_bias_grad
    values = [answer.token_loss if is_per_token(options) else answer.loss]
    values += [grad for grad, want in zip(grads, wanted) if want]
    for output, value in zip(made, values):
        output.copy_(torch.as_tensor(value, dtype=torch.float64))
    return made


OF_DEVICE = {"cuda": cuda, "cpu": cpu}
