# SPDX-License-Identifier: Apache-2.0
"""libfljsd_cuda.so through ctypes: the structures of cuda/fljsd.h, and where the library is looked for."""
from __future__ import annotations

import ctypes
import functools
import os
from ctypes import c_char_p, c_double, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

from .program import PREFIX, checkouts

# Enumerations of the header.
ABSENT, BF16, F16, F32 = range(4)
REDUCTIONS = {"batchmean": 0, "sum": 1, "none": 2}
INPUT_GRAD, WEIGHT_GRAD, BIAS_GRAD = 1, 2, 4
FORWARD, FORWARD_BACKWARD = 0, 1


class LibraryError(RuntimeError):
    """The library was not found, or refused a call. One sentence."""


class Config(ctypes.Structure):
    """fljsd_config."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("tokens", c_int64), ("vocab", c_int64), ("student_hidden", c_int64), ("teacher_hidden", c_int64),
        ("student_input_ld", c_int64), ("student_weight_ld", c_int64),
        ("teacher_input_ld", c_int64), ("teacher_weight_ld", c_int64),
        ("student_input_grad_ld", c_int64), ("student_weight_grad_ld", c_int64),
        ("student_dtype", c_int32), ("teacher_dtype", c_int32), ("gradient_dtype", c_int32),
        ("student_bias_dtype", c_int32), ("teacher_bias_dtype", c_int32), ("has_labels", c_int32),
        ("ignore_index", c_int64), ("valid_vocab", c_int64),
        ("beta", c_double), ("temperature", c_double),
        ("reduction", c_int32), ("gradients", c_int32),
        ("stage", c_char_p), ("memory_budget", c_int64),
        ("device", c_int32), ("reserved", c_int32),
        ("chunk_tokens", c_int64), ("chunk_vocab", c_int64), ("gradient_chunk_vocab", c_int64),
    ]


class Tensors(ctypes.Structure):
    """fljsd_tensors."""

    _fields_ = [("struct_size", c_uint64)] + [(name, c_void_p) for name in (
        "student_input", "student_weight", "teacher_input", "teacher_weight", "student_bias", "teacher_bias", "labels",
        "loss", "token_loss", "student_input_grad", "student_weight_grad", "student_bias_grad")]


class Stage(ctypes.Structure):
    """fljsd_stage."""

    _fields_ = [
        ("struct_size", c_uint64), ("name", c_char_p), ("description", c_char_p), ("is_baseline", c_int32),
        ("logits_dtype", c_int32), ("minimum_capability", c_int32), ("reserved", c_int32),
    ]


SIGNATURES = {
    "fljsd_version": (c_int32, []),
    "fljsd_architectures": (c_char_p, []),
    "fljsd_last_error": (c_char_p, []),
    "fljsd_stage_count": (c_int32, []),
    "fljsd_stage_get": (c_int32, [c_int32, ctypes.POINTER(Stage)]),
    "fljsd_stage_available": (c_int32, [c_char_p, c_int32]),
    "fljsd_config_init": (c_int32, [ctypes.POINTER(Config), c_uint64]),
    "fljsd_plan_create": (c_int32, [ctypes.POINTER(Config), ctypes.POINTER(c_void_p)]),
    "fljsd_plan_destroy": (None, [c_void_p]),
    "fljsd_plan_workspace_bytes": (c_int32, [c_void_p, c_int32, ctypes.POINTER(c_uint64)]),
    "fljsd_plan_describe": (c_char_p, [c_void_p]),
    # The second argument is a Tensors by reference, or its bytes.
    "fljsd_forward": (c_int32, [c_void_p, c_void_p, c_void_p, c_uint64, c_void_p]),
    "fljsd_forward_backward": (c_int32, [c_void_p, c_void_p, c_void_p, c_uint64, c_void_p]),
}


def find_library() -> Path:
    """The environment variable FLJSD_CUDA_LIBRARY, else the libfljsd_cuda.so that was installed with the package fljsd,
    else that of the release build of the checkout. LibraryError when there is none."""
    named = os.environ.get("FLJSD_CUDA_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise LibraryError(f"the environment variable FLJSD_CUDA_LIBRARY is {named!r}, but that is not a file.")
        return Path(named)
    for folder in (PREFIX / "lib", *(root / "build" / "release" / "cuda" for root in checkouts())):
        found = sorted(folder.glob("libfljsd_cuda.so*"))
        if found:
            return found[0]
    raise LibraryError("libfljsd_cuda.so was not found: install the package where there is a CUDA toolkit (pip install . "
                       "in a checkout), or set the environment variable FLJSD_CUDA_LIBRARY to the library.")


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library. Where PyTorch is used it must be imported first: its libcublasLt then serves both."""
    path = find_library()
    try:
        library = ctypes.CDLL(str(path.resolve()))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LibraryError(f"{path} could not be used: {error}.") from None
    return library


def check(status: int) -> None:
    """LibraryError with the library's own sentence unless the status is FLJSD_OK."""
    if status != 0:
        raise LibraryError(load().fljsd_last_error().decode(errors="replace"))
