# SPDX-License-Identifier: Apache-2.0
"""The operator fljsd::fused_linear_jsd: its CUDA and CPU kernels, shapes and derivative.

The derivative is an autograd.Function behind the dispatcher's Autograd key. torch.library.register_autograd does the same,
but goes through all arguments of the schema in Python at each call: with 17 of them, 110 us of 160.

Gradients are outputs of the forward call, computed in the same pass over the vocabulary; the derivative scales them by
the upstream gradient.
"""
from __future__ import annotations

import ctypes

import torch

from ..case import Case
from ..truth import truth
from . import library
from .layout import NAMES, Options, check, layouts
from .library import Tensors
from .plan import kept_dtype, plan_for

NAME = "fljsd::fused_linear_jsd"
_TENSORS_SIZE = ctypes.sizeof(Tensors)
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


def _outputs(tensors, per_token, gradients) -> list:
    """Uninitialised outputs."""
    student_input, student_weight = tensors[:2]
    dtype = student_input.dtype
    wide, kept = torch.float64 if dtype == torch.float64 else torch.float32, kept_dtype(dtype)
    outputs = [student_input.new_empty(student_input.shape[:1] if per_token else (), dtype=wide)]
    if gradients[0]:
        outputs.append(student_input.new_empty(student_input.shape, dtype=kept))
    if gradients[1]:
        outputs.append(student_input.new_empty(student_weight.shape, dtype=kept))
    if gradients[2]:
        outputs.append(student_input.new_empty(student_weight.shape[:1], dtype=wide))
    return outputs


def _cuda(*arguments):
    tensors, options, gradients = arguments[:7], arguments[7:14], arguments[14:]
    device = tensors[0].device
    if device.type != "cuda":
        check(layouts(tensors), Options(*options))  # raises: another tensor brought the call here
    if device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return _cuda(*arguments)
    flags = library.INPUT_GRAD * gradients[0] | library.WEIGHT_GRAD * gradients[1] | library.BIAS_GRAD * gradients[2]
    plan = plan_for(layouts(tensors), options, flags)
    per_token = arguments[11] == "none"
    outputs = _outputs(tensors, per_token, gradients)
    # Vectors are small enough to be copied where they have gaps; `vectors` keeps the copies alive.
    vectors = [None if t is None else t.contiguous() for t in tensors[4:]]
    call = Tensors(_TENSORS_SIZE, *[None if t is None else t.data_ptr() for t in (*tensors[:4], *vectors)])
    pointers = iter([output.data_ptr() for output in outputs])
    if per_token:
        call.token_loss = next(pointers)
    else:
        call.loss = next(pointers)
    if gradients[0]:
        call.student_input_grad = next(pointers)
    if gradients[1]:
        call.student_weight_grad = next(pointers)
    if gradients[2]:
        call.student_bias_grad = next(pointers)
    plan.run(call, device)
    return outputs


torch.library.impl(NAME, "cuda", _cuda)


def _cpu(*arguments):
    """The float64 reference, rounded once to the dtype of each output. Stage and memory budget mean nothing here."""
    tensors, options, gradients = arguments[:7], Options(*arguments[7:14]), arguments[14:]
    check(layouts(tensors), options)
    given = dict(zip(NAMES, tensors))
    case = Case(*[given.pop(name) for name in NAMES[:4]], **given, beta=options.beta, temperature=options.temperature,
                ignore_index=options.ignore_index, reduction=options.reduction,
                valid_vocab=options.valid_vocab or None)
    per_token = options.reduction == "none"
    outputs = _outputs(tensors, per_token, gradients)
    answer = truth(case, grad=any(gradients))
    grads = answer.student_input_grad, answer.student_weight_grad, answer.student_bias_grad
    values = [answer.token_loss if per_token else answer.loss]
    values += [grad for grad, wanted in zip(grads, gradients) if wanted]
    for output, value in zip(outputs, values):
        output.copy_(torch.as_tensor(value, dtype=torch.float64))
    return outputs


torch.library.impl(NAME, "cpu", _cpu)


@torch.library.register_fake(NAME)
def _fake(*arguments):
    tensors, options, gradients = arguments[:7], Options(*arguments[7:14]), arguments[14:]
    check(layouts(tensors), options)
    return _outputs(tensors, options.reduction == "none", gradients)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *arguments):
        with torch._C._AutoDispatchBelowAutograd():
            outputs = OPERATOR(*arguments)
        grads = outputs[1:]
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(*grads)
        ctx.set_materialize_grads(False)  # or backward would be given zeros of the size of each gradient
        ctx.dtypes = [None if t is None else t.dtype for t in (arguments[0], arguments[1], arguments[4])]
        ctx.wanted, ctx.per_token = arguments[14:], arguments[11] == "none"
        return tuple(outputs)

    @staticmethod
    def backward(ctx, upstream, *_):
        return _backward(ctx, upstream)


def _autograd(*arguments):
    if any(arguments[14:]):
        return list(_Differentiable.apply(*arguments))
    with torch._C._AutoDispatchBelowAutograd():
        return OPERATOR(*arguments)


_library = torch.library.Library("fljsd", "FRAGMENT")
_library.impl("fused_linear_jsd", _autograd, "Autograd")


def _backward(ctx, upstream):
    """Not in place, so that the graph can be walked again while it is retained."""
    results = [None] * 17
    if upstream is None:
        return tuple(results)
    grads, (input_wanted, weight_wanted, bias_wanted) = iter(ctx.saved_tensors), ctx.wanted
    row_scale = scale = upstream
    if ctx.per_token:
        row_scale = upstream[:, None]
        if weight_wanted or bias_wanted:
            scale = _one_number(upstream)
    for at, wanted, factor, dtype in ((0, input_wanted, row_scale, ctx.dtypes[0]),
                                      (1, weight_wanted, scale, ctx.dtypes[1]),
                                      (4, bias_wanted, scale, ctx.dtypes[2])):
        if wanted:
            results[at] = (next(grads) * factor).to(dtype)
    if torch.is_grad_enabled():  # create_graph=True
        some = [at for at, result in enumerate(results) if result is not None]
        for at, result in zip(some, _Once.apply(*[results[at].detach().requires_grad_() for at in some])):
            results[at] = result
    return tuple(results)


def _one_number(upstream):
    """The upstream gradient of losses per token when it is one number for all of them, as sum() leaves it: gradients of
    weight and bias are sums over tokens and cannot be weighted afterwards."""
    if upstream.numel() == 0:
        return upstream.sum()
    if upstream.numel() > 1 and upstream.stride(0) != 0:
        raise RuntimeError("fused_linear_jsd with reduction 'none' gives gradients of student_weight and student_bias "
                           "only through loss.sum(), not through tokens weighted one by one: use reduction 'sum' or "
                           "'batchmean', or freeze the head.")
    return upstream[0]


class _Once(torch.autograd.Function):
    """The identity; differentiating it is refused."""

    @staticmethod
    def forward(ctx, *values):
        return tuple([value.view_as(value) for value in values])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("fused_linear_jsd has first derivatives only: its gradients cannot be differentiated again.")

