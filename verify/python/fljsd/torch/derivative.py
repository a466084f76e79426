# SPDX-License-Identifier: Apache-2.0
"""The derivative: gradients wait since the forward call, and are multiplied by the upstream gradient."""
from __future__ import annotations

import torch


class Differentiable(torch.autograd.Function):
    """apply(student_input, student_weight, student_bias, run): the loss that run() returns as the first of a list, the
    gradients of those of the three that require one following; see kernels.py."""

    @staticmethod
    def forward(ctx, student_input, student_weight, student_bias, run):
        loss, *grads = run()
        ctx.save_for_backward(*grads)
        return loss

    @staticmethod
    def backward(ctx, upstream):
        """Not in place, so that the graph can be walked again while it is retained. Autograd brings what is returned into
        the dtype of what it is the gradient of."""
        wanted = ctx.needs_input_grad[:3]
        row_scale = scale = upstream
        if upstream.ndim == 1:  # a loss per token
            row_scale = upstream[:, None]
            if wanted[1] or wanted[2]:
                scale = _one_number(upstream)
        grads = iter(ctx.saved_tensors)
        results = [next(grads) * factor if want else None for want, factor in zip(wanted, (row_scale, scale, scale))]
        if torch.is_grad_enabled():  # create_graph=True
            some = [at for at, result in enumerate(results) if result is not None]
            for at, result in zip(some, _Once.apply(*[results[at].detach().requires_grad_() for at in some])):
                results[at] = result
        return (*results, None)


# What apply() comes to where no functional transform is active, which the caller must know: without a detour through
# Python that costs as much as the rest of it.
plain_apply = super(torch.autograd.Function, Differentiable).apply


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
