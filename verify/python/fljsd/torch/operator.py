# SPDX-License-Identifier: Apache-2.0
"""The operator fljsd::fused_linear_jsd: its CUDA and CPU kernels, shapes and derivative.

The derivative is an autograd.Function behind the dispatcher's Autograd key. torch.library.register_autograd does the same,
but goes through all arguments of the schema in Python at each call: with 17 of them, 110 us of 160.

Gradients are outputs of the forward call, computed in the same pass over the vocabulary
(empty where they are not asked for); the derivative scales them by the upstream gradient.
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
    "-> (Tensor loss, Tensor input_grad_out, Tensor weight_grad_out, Tensor bias_grad_out)",
    tags=(_TAG,))
_OPERATOR = torch.ops.fljsd.fused_linear_jsd.default


def _outputs(tensors, reduction, gradients):
    """Uninitialised outputs; of an empty shape (0,) where a gradient is not asked for."""
    student_input, student_weight = tensors[:2]
    double = student_input.dtype == torch.float64
    wide, kept = torch.float64 if double else torch.float32, kept_dtype(student_input.dtype)
    rows, (vocab, _) = student_input.shape[0], student_weight.shape
    shapes = ((rows,) if reduction == "none" else (), student_input.shape, student_weight.shape, (vocab,))
    wanted = (True, *gradients)
    return tuple([student_input.new_empty(shape if want else (0,), dtype=dtype)
                  for shape, want, dtype in zip(shapes, wanted, (wide, kept, kept, wide))])


def _cuda(*arguments):
    tensors, options, gradients = arguments[:7], Options(*arguments[7:14]), arguments[14:]
    device = tensors[0].device
    if device.type != "cuda":
        check(layouts(tensors), options)  # raises: another tensor brought the call here
    if device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return _cuda(*arguments)
    flags = library.INPUT_GRAD * gradients[0] | library.WEIGHT_GRAD * gradients[1] | library.BIAS_GRAD * gradients[2]
    plan = plan_for(layouts(tensors), options, flags)
    outputs = _outputs(tensors, options.reduction, gradients)
    # Vectors are small enough to be copied where they have gaps; `vectors` keeps the copies alive.
    vectors = [None if t is None else t.contiguous() for t in tensors[4:]]
    call = Tensors(_TENSORS_SIZE, *[None if t is None else t.data_ptr() for t in (*tensors[:4], *vectors)])
    loss, *grads = outputs
    setattr(call, "token_loss" if options.reduction == "none" else "loss", loss.data_ptr())
    for name, wanted, grad in zip(("input", "weight", "bias"), gradients, grads):
        if wanted:
            setattr(call, f"student_{name}_grad", grad.data_ptr())
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
    outputs = _outputs(tensors, options.reduction, gradients)
    answer = truth(case, grad=any(gradients))
    values = (answer.token_loss if options.reduction == "none" else answer.loss, answer.student_input_grad,
              answer.student_weight_grad, answer.student_bias_grad)
    for output, value, wanted in zip(outputs, values, (True, *gradients)):
        if wanted:
            output.copy_(torch.as_tensor(value, dtype=torch.float64))
    return outputs


torch.library.impl(NAME, "cpu", _cpu)


@torch.library.register_fake(NAME)
def _fake(*arguments):
    tensors, options, gradients = arguments[:7], Options(*arguments[7:14]), arguments[14:]
    check(layouts(tensors), options)
    return _outputs(tensors, options.reduction, gradients)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *arguments):
        with torch._C._AutoDispatchBelowAutograd():
            outputs = _OPERATOR(*arguments)
        grads = outputs[1:]
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(*grads)
        ctx.set_materialize_grads(False)  # or backward would be given zeros of the size of each gradient
        ctx.dtypes = [None if t is None else t.dtype for t in (arguments[0], arguments[1], arguments[4])]
        ctx.wanted, ctx.per_token = arguments[14:], arguments[11] == "none"
        return outputs

    @staticmethod
    def backward(ctx, upstream, *_):
        return _backward(ctx, upstream)


def _autograd(*arguments):
    if any(arguments[14:]):
        return _Differentiable.apply(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return _OPERATOR(*arguments)


_library = torch.library.Library("fljsd", "FRAGMENT")
_library.impl("fused_linear_jsd", _autograd, "Autograd")


def _backward(ctx, upstream):
    """Not in place, so that the graph can be walked again while it is retained."""
    results = [None] * 17
    if upstream is None:
        return tuple(results)
    grads, (input_wanted, weight_wanted, bias_wanted) = ctx.saved_tensors, ctx.wanted
    row_scale = scale = upstream
    if ctx.per_token:
        row_scale = upstream[:, None]
        if weight_wanted or bias_wanted:
            scale = _one_number(upstream)
    for at, wanted, grad, factor, dtype in ((0, input_wanted, grads[0], row_scale, ctx.dtypes[0]),
                                            (1, weight_wanted, grads[1], scale, ctx.dtypes[1]),
                                            (4, bias_wanted, grads[2], scale, ctx.dtypes[2])):
        if wanted:
            results[at] = (grad * factor).to(dtype)
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

