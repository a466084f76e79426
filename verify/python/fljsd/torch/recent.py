# SPDX-License-Identifier: Apache-2.0
"""Calls like an earlier one. Whether a call may go past the dispatcher, and which plan is its own, follows from types,
layouts, dispatch keys and modes. torch.compile guards its graphs by just these, in one call of C++: once a call has been
looked at, the same guards say that the next one is like it, in a tenth of the time.

Private to PyTorch: where the guards are missing or take other arguments, nothing is remembered.
"""
from __future__ import annotations

import torch

try:
    TensorGuards = torch._C._dynamo.guards.TensorGuards
except AttributeError:
    TensorGuards = None

_MOST = 128
_seen: dict = {}  # by _key(): the guards of the latest such call, and what is known of it


def _key(tensors, options) -> tuple:
    return options, torch.is_grad_enabled(), tensors[4] is None, tensors[5] is None, tensors[6] is None


def _present(tensors):
    return tensors[:4] if tensors[4] is tensors[5] is tensors[6] is None else [t for t in tensors if t is not None]


def find(tensors, options: tuple):
    """What remember() was told of a call, if this one is like it; else None."""
    if torch.compiler.is_compiling():
        return None
    entry = _seen.get(_key(tensors, options))
    if entry is None or torch.autograd._profiler_enabled():
        return None
    is_like, known = entry
    return known if is_like(*_present(tensors)) else None


def remember(tensors, options: tuple, known) -> None:
    """`known`: of a call that only plain tensors and autograd take part in; it must not hold tensors."""
    if TensorGuards is None:
        return
    present = _present(tensors)
    try:
        guards = TensorGuards(*present, dynamic_dims_sizes=[list(t.shape) for t in present],
                              dynamic_dims_strides=[list(t.stride()) for t in present])
    except TypeError:
        return
    if len(_seen) >= _MOST:
        _seen.clear()
    _seen[_key(tensors, options)] = guards.check, known
