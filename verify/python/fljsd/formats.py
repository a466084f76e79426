# SPDX-License-Identifier: Apache-2.0
"""Between arrays of any library and tensors of a file. bf16 needs nothing but NumPy: it is the upper half of a float32."""
from __future__ import annotations

import numpy as np

from .safetensors import Tensor

_NUMPY = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "I64": np.dtype("<i8")}
_FILE = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64", "int64": "I64"}
_SHORT = {"bf16": "BF16", "f16": "F16", "f32": "F32", "f64": "F64"}


def decode(tensor: Tensor) -> np.ndarray:
    """The values, exactly: float32 for BF16, F16 and F32, float64 for F64, int64 for I64. May be read-only."""
    if tensor.dtype == "BF16":
        bits = np.frombuffer(tensor.data, "<u2").astype("<u4") << 16
        return bits.view("<f4").reshape(tensor.shape)
    array = np.frombuffer(tensor.data, _NUMPY[tensor.dtype]).reshape(tensor.shape)
    return array.astype("<f4") if tensor.dtype == "F16" else array


def decode_as_stored(tensor: Tensor) -> np.ndarray:
    """The values in the format of the file; for BF16 that needs the package ml_dtypes."""
    if tensor.dtype != "BF16":
        return np.frombuffer(tensor.data, _NUMPY[tensor.dtype]).reshape(tensor.shape)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise ImportError("NumPy has no bf16 of its own: install ml_dtypes, or take the float32 values.") from None
    return np.frombuffer(tensor.data, bfloat16).reshape(tensor.shape)


def laid_out(array: np.ndarray, row_padding: int, misalignment: int) -> np.ndarray:
    """A copy whose rows are `row_padding` elements of NaN apart, and which starts `misalignment` bytes, rounded down to
    whole elements, past a 64-byte boundary."""
    size = array.itemsize
    stride = array.shape[-1] + row_padding
    rows = array.shape[0] if array.ndim == 2 else 1
    count = (rows - 1) * stride + array.shape[-1] if rows else 0
    memory = np.full(128 + count * size, 0xFF, np.uint8)  # all ones is NaN in every format
    begin = -memory.ctypes.data % 64 + misalignment // size * size
    flat = memory[begin : begin + count * size].view(array.dtype)
    copy = np.lib.stride_tricks.as_strided(flat, array.shape, (stride * size, size)[-array.ndim :])
    copy[...] = array
    return copy


def encode(array, dtype: str | None = None) -> Tensor:
    """A tensor of a NumPy, PyTorch or JAX array, a number or nested lists; ValueError for what has no format here.

    It keeps the array's format, or rounds once, to nearest even, to `dtype`: bf16, f16, f32 or f64.
    """
    if isinstance(array, Tensor):
        if dtype is None or _SHORT[dtype] == array.dtype:
            return array
        array = decode(array)
    if hasattr(array, "detach"):  # torch
        tensor = _encode_torch(array)
        return tensor if dtype is None else encode(tensor, dtype)
    array = np.asarray(array)
    if array.dtype.kind in "iub" and dtype is None:
        array = array.astype(np.int64)
    if array.dtype.name not in _FILE and array.dtype.kind not in "iub":
        raise ValueError(f"an array has the dtype {array.dtype}, but it must be one of {', '.join(_FILE)}.")
    if dtype is not None:
        if dtype not in _SHORT:
            raise ValueError(f"dtype is {dtype!r}, but it must be one of {', '.join(_SHORT)}.")
        if dtype == "bf16" and array.dtype.name != "bfloat16":
            return Tensor("BF16", array.shape, bf16_bits(array).astype("<u2").tobytes())
        if dtype != "bf16":
            with np.errstate(over="ignore"):  # to infinity, as the hardware does
                array = array.astype(_NUMPY[_SHORT[dtype]])
    name = _FILE[array.dtype.name]
    if array.dtype.byteorder == ">":
        array = array.astype(_NUMPY[name])
    return Tensor(name, array.shape, array.tobytes())


def _encode_torch(tensor) -> Tensor:
    import torch

    tensor = tensor.detach().to("cpu").contiguous()
    if tensor.dtype == torch.bfloat16:
        return Tensor("BF16", tuple(tensor.shape), tensor.view(torch.int16).numpy().tobytes())
    return encode(tensor.numpy())


def bf16_bits(array) -> np.ndarray:
    """The bf16 bit patterns (uint16) nearest to an array of float64 or narrower, ties to even."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinities, and NaN that signals
        exact = np.asarray(array, dtype=np.float64)
        near = exact.astype(np.float32)
    bits = near.view(np.uint32)
    # To float32 by rounding to odd: truncate, then set the last bit if anything was lost. The second rounding then
    # sees on which side of a tie the value was, so that two roundings act as one.
    inexact = near.astype(np.float64) != exact
    bits = bits - (np.abs(near) > np.abs(exact))
    bits = np.where(inexact, bits | 1, bits).astype(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    quiet = (bits >> 16) | 0x40  # NaN: rounding could carry out of its last bits
    return np.where(np.isnan(exact), quiet, rounded).astype(np.uint16)
