# SPDX-License-Identifier: Apache-2.0
"""What is known of the tensors of a call without looking at their values, and the rules that they keep."""
from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ..library import REDUCTIONS

MATRICES = ("student_input", "student_weight", "teacher_input", "teacher_weight")
NAMES = MATRICES + ("student_bias", "teacher_bias", "labels")
FLOATS = (torch.bfloat16, torch.float16, torch.float32)


class Layout(NamedTuple):
    """With FakeTensors, sizes and strides may be symbols."""

    dtype: torch.dtype
    shape: tuple
    strides: tuple
    device: torch.device


def layouts(tensors) -> tuple:
    """The fields of a Layout of each tensor of NAMES, as plain tuples: this is on the way of every call."""
    x, w, y, u, *vectors = tensors
    return ((x.dtype, x.shape, x.stride(), x.device), (w.dtype, w.shape, w.stride(), w.device),
            (y.dtype, y.shape, y.stride(), y.device), (u.dtype, u.shape, u.stride(), u.device),
            *[None if t is None else (t.dtype, t.shape, t.stride(), t.device) for t in vectors])


def by_name(given: tuple) -> dict:
    return {name: None if fields is None else Layout(*fields) for name, fields in zip(NAMES, given)}


def kept_dtype(dtype: torch.dtype) -> torch.dtype:
    """In which gradients of this dtype wait for the upstream gradient. A loss scaler brings small fp16 gradients into
    range by the upstream gradient, so they must not have been rounded to fp16 before."""
    return torch.float32 if dtype == torch.float16 else dtype


def output_layouts(given: tuple, per_token: bool, wanted) -> list:
    """Shape, strides and dtype of the loss and of the gradients wanted (of student_input, student_weight, student_bias)."""
    (dtype, rows, _, _), (_, weight, _, _) = given[:2]
    wide, kept = torch.float64 if dtype == torch.float64 else torch.float32, kept_dtype(dtype)
    loss = ((rows[0],), (1,), wide) if per_token else ((), (), wide)
    grads = [(tuple(shape), (shape[1], 1), kept) for shape in (rows, weight)] + [((weight[0],), (1,), wide)]
    return [loss, *[grad for grad, want in zip(grads, wanted) if want]]


class Options(NamedTuple):
    """As the operator takes them: 0 where there is no valid_vocab or memory_budget."""

    beta: float
    temperature: float
    ignore_index: int
    valid_vocab: int
    reduction: str
    stage: str
    memory_budget: int


def check(given: tuple, options: Options) -> None:
    """ValueError, one sentence, for the first rule broken. `given`: what layouts() says of the tensors of NAMES."""
    at = by_name(given)
    for name in MATRICES:
        _check_matrix(name, at[name])
    student, teacher = at["student_input"], at["teacher_input"]
    vocab = at["student_weight"].shape[0]
    _expect("student_weight", at["student_weight"].shape, (vocab, student.shape[1]))
    _expect("teacher_input", teacher.shape, (student.shape[0], teacher.shape[1]))
    _expect("teacher_weight", at["teacher_weight"].shape, (vocab, teacher.shape[1]))
    floats = FLOATS + (torch.float64,) if student.device.type == "cpu" else FLOATS
    for name, layout in at.items():
        if layout is None:
            continue
        if layout.device != student.device:
            raise ValueError(f"{name} is on {layout.device}, but it must be on {student.device} as student_input is.")
        allowed = (torch.int64,) if name == "labels" else floats
        if layout.dtype not in allowed:
            raise ValueError(f"{name} has dtype {layout.dtype}, but on {student.device} it must be "
                             f"{' or '.join(map(str, allowed))}.")
    for model in ("student", "teacher"):
        input_dtype, weight_dtype = at[f"{model}_input"].dtype, at[f"{model}_weight"].dtype
        if input_dtype != weight_dtype:
            raise ValueError(f"{model}_weight has dtype {weight_dtype}, but it must be {input_dtype} as {model}_input "
                             "is: cast one of them, or use torch.autocast.")
    for name, size in (("student_bias", vocab), ("teacher_bias", vocab), ("labels", student.shape[0])):
        if at[name] is not None:
            _expect(name, at[name].shape, (size,))
    _check_options(options, vocab)


def _check_matrix(name, layout):
    if layout is None or len(layout.shape) != 2:
        shape = None if layout is None else list(layout.shape)
        raise ValueError(f"{name} has shape {shape}, but it must be a matrix.")
    rows, columns = layout.shape
    if rows == 0:
        return  # strides of nothing mean nothing
    if (columns > 1 and layout.strides[1] != 1) or (rows > 1 and layout.strides[0] < columns):
        raise ValueError(f"{name} has strides {list(layout.strides)}, but elements of a row must be adjacent and rows "
                         f"must not overlap: pass {name}.contiguous().")


def _expect(name, shape, expected):
    if len(shape) != len(expected) or any(a != b for a, b in zip(shape, expected)):
        raise ValueError(f"{name} has shape {list(shape)}, but with the other tensors it must be {list(expected)}.")


def _check_options(options, vocab):
    for name, good, allowed in (
        ("beta", 0 <= options.beta <= 1, "from 0 to 1"),
        ("temperature", 0 < options.temperature < math.inf, "positive and finite"),
        ("reduction", options.reduction in REDUCTIONS, ", ".join(REDUCTIONS)),
        ("valid_vocab", 0 <= options.valid_vocab <= vocab, f"from 1 to vocab, {vocab}"),
        ("memory_budget", options.memory_budget >= 0, "a positive number of bytes"),
    ):
        if not good:
            raise ValueError(f"{name} is {getattr(options, name)!r}, but it must be {allowed}.")
