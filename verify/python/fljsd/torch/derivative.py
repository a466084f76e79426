# SPDX-License-Identifier: Apache-2.0
"""The derivative: gradients wait since the forward call, and are multiplied by the upstream gradient."""
from __future__ import annotations

import torch


class Differentiable(torch.autograd.Function):
    """apply(student_input, student_weight, student_bias, run, tensors): the loss that run(tensors) returns as the first of
    a list, the gradients of those of the three that require one following; see kernels.py. Others may hold these
    gradients."""

    owns_gradients = False

    @staticmethod
    def forward(ctx, student_input, student_weight, student_bias, run, tensors):
        outputs = run(tensors)
        ctx.save_for_backward(*outputs[1:])
        return outputs[0]

    @staticmethod
    def backward(ctx, upstream):
        """Autograd brings what is returned into the dtype of what it is the gradient of."""
        wanted = ctx.needs_input_grad[:3]
        if upstream.ndim == 1:  # a loss per token
            row_scale, scale = upstream[:, None], _one_number(upstream) if wanted[1] or wanted[2] else None
        else:  # as a vector, because PyTorch rounds a factor without dimensions to the dtype of the gradient first
            row_scale = scale = upstream[None]
        multiply = _way_to_multiply(upstream, ctx._forward_cls.owns_gradients)
        grads = iter(ctx.saved_tensors)
        results = [multiply(next(grads), factor) if want else None
                   for want, factor in zip(wanted, (row_scale, scale, scale))]
        if torch.is_grad_enabled():  # create_graph=True
            some = [at for at, result in enumerate(results) if result is not None]
            for at, result in zip(some, _Once.apply(*[results[at].detach().requires_grad_() for at in some])):
                results[at] = result
        return (*results, None, None)


class Owner(Differentiable):
    """The same where nobody but the graph holds the gradients that run() returns: the last walk may overwrite them."""

    owns_gradients = True


# What apply() comes to where no functional transform is active, which the caller must know: without a detour through
# Python that costs as much as the rest of it.
_shared_apply, _owner_apply = [super(torch.autograd.Function, kind).apply for kind in (Differentiable, Owner)]

# Private, but what PyTorch's own compiled backward asks before it reuses saved tensors. True outside a walk.
_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
_saving_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def plain_apply():
    """Differentiable.apply for gradients that the caller does not keep. Hooks on saved tensors may keep them beyond the
    life of the graph, and where PyTorch does not say whether there are hooks, there may be."""
    return _owner_apply if _saving_hooks is not None and _saving_hooks(False) is None else _shared_apply


def _way_to_multiply(upstream, owns_gradients):
    """Without a second copy of the saved gradients, in place, if this walk is the last one of the graph: known on the host
    because autograd frees what is saved right after backward() unless the graph is kept. If anything else did come to
    read them, autograd would find their version changed and raise. Not in place while a CUDA graph is captured, whose
    backward part may be replayed alone."""
    if (torch.compiler.is_compiling() or torch.is_grad_enabled()  # traced, or to be differentiated
            or type(upstream) is not torch.Tensor or torch._C._functorch.is_functorch_wrapped_tensor(upstream)
            or torch._C._functorch.is_legacy_batchedtensor(upstream)  # is_grads_batched=True
            or torch._C._len_torch_dispatch_stack() > 0):
        return torch.mul  # autograd rounds
    if not owns_gradients or _graph_is_kept() or upstream.is_cuda and torch.cuda.is_current_stream_capturing():
        return _rounded_product
    return torch.Tensor.mul_


def _rounded_product(grad, factor):
    """In the dtype of the gradient, without the wider product that is then cast."""
    return torch.mul(grad, factor, out=torch.empty_like(grad))


def _one_number(upstream):
    """The upstream gradient of losses per token when it is one number for all of them, as sum() leaves it: gradients of
    weight and bias are sums over tokens and cannot be weighted afterwards."""
    if upstream.numel() == 0:
        return upstream.sum(0, keepdim=True)
    if upstream.numel() > 1 and upstream.stride(0) != 0:
        raise RuntimeError("fused_linear_jsd with reduction 'none' gives gradients of student_weight and student_bias "
                           "only through loss.sum(), not through tokens weighted one by one: use reduction 'sum' or "
                           "'batchmean', or freeze the head.")
    return upstream[:1]


class _Once(torch.autograd.Function):
    """The identity; differentiating it is refused."""

    @staticmethod
    def forward(ctx, *values):
        return tuple([value.view_as(value) for value in values])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("fused_linear_jsd has first derivatives only: its gradients cannot be differentiated again.")
