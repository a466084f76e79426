# SPDX-License-Identifier: Apache-2.0
"""Calls like an earlier one. Whether a call may go past the dispatcher, and which plan is its own, follows from types,
layouts, dispatch keys and modes. torch.compile guards its graphs by just these, in one call of C++: once a call has been
looked at, the same guards say that the next one is like it, in a tenth of the time.

Private to PyTorch: where the guards are missing or take other arguments, nothing is remembered.
"""
from __future__ import annotations

import operator

import torch
from torch import is_grad_enabled
from torch.autograd import _profiler_enabled
from torch.compiler import is_compiling

try:
    TensorGuards = torch._C._dynamo.guards.TensorGuards
except AttributeError:
    TensorGuards = None

_MOST = 128
_seen: dict = {}  # by _key(): the guards of the latest such call, which tensors they look at, and what is known of it


def _key(tensors, options) -> tuple:
    return options, is_grad_enabled(), tensors[4] is None, tensors[5] is None, tensors[6] is None


def find(tensors, options: tuple):
    """What remember() was told of a call, if this one is like it; else None."""
    if is_compiling():
        return None
    entry = _seen.get(_key(tensors, options))
    if entry is None or _profiler_enabled():
        return None
    is_like, present_of, known = entry
    return known if is_like(*present_of(tensors)) else None


def remember(tensors, options: tuple, known) -> None:
    """`known`: of a call that only plain tensors and autograd take part in; it must not hold tensors."""
    if TensorGuards is None:
        return
    present_of = operator.itemgetter(*[at for at, t in enumerate(tensors) if t is not None])
    present = present_of(tensors)
    try:
        guards = TensorGuards(*present, dynamic_dims_sizes=[list(t.shape) for t in present],
                              dynamic_dims_strides=[list(t.stride()) for t in present])
    except TypeError:
        return
    if len(_seen) >= _MOST:
        _seen.clear()
    _seen[_key(tensors, options)] = guards.check, present_of, known
