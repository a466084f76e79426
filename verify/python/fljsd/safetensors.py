# SPDX-License-Identifier: Apache-2.0
"""Safetensors files: an 8-byte header length, a JSON header, then the tensors' bytes.

Reading refuses everything that the format forbids; FileError is one sentence that names the file and what is wrong.
"""
from __future__ import annotations

import json
import os
import struct
from math import prod
from pathlib import Path
from typing import NamedTuple

ELEMENT_SIZE = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8}
_MAX_HEADER = 100 << 20  # bytes; the limit that the format's own library has


class FileError(ValueError):
    """A file that cannot be what it should be."""


class Tensor(NamedTuple):
    """A tensor as it stands in a file: row-major, little-endian."""

    dtype: str  # a key of ELEMENT_SIZE
    shape: tuple[int, ...]
    data: bytes | memoryview


def read(path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors by name and the metadata of a file. OSError when it cannot be read."""
    with open(path, "rb") as file:
        return parse(file.read(), os.fspath(path))


def parse(content: bytes, origin: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same for bytes in memory; `origin` names them in errors. The tensors are views of `content`."""
    if len(content) < 8:
        raise FileError(f"{origin} has {len(content)} bytes, but a safetensors file has at least 8.")
    (size,) = struct.unpack_from("<Q", content)
    if size > min(len(content) - 8, _MAX_HEADER):
        raise FileError(f"{origin} says that its header has {size} bytes, but only {len(content) - 8} follow.")
    try:
        header = json.loads(content[8 : 8 + size], object_pairs_hook=_unique)
    except ValueError as error:  # bad UTF-8, bad JSON, or a key twice
        raise FileError(f"{origin} has a header that is not valid: {error}.") from None
    if not isinstance(header, dict):
        raise FileError(f"{origin} has a header that is not a JSON object.")
    metadata = header.pop("__metadata__", {})
    if not (isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())):
        raise FileError(f"{origin} has __metadata__ that is not an object of strings.")
    body = memoryview(content)[8 + size :]
    tensors, spans = {}, []
    for name, entry in header.items():
        begin, end = _checked_span(name, entry, len(body), origin)
        tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), body[begin:end])
        spans.append((begin, end))
    position = 0
    for begin, end in sorted(spans):  # one after the other, from the first byte to the last
        if begin != position:
            raise FileError(f"{origin} has tensors that overlap or leave a hole at byte {min(begin, position)}.")
        position = end
    if position != len(body):
        raise FileError(f"{origin} has {len(body) - position} bytes after the last tensor.")
    return tensors, metadata


def _unique(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _checked_span(name, entry, available, origin) -> tuple[int, int]:
    def whole(numbers):
        return isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)

    if not (isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}):
        raise FileError(f"{origin}: tensor '{name}' must have dtype, shape and data_offsets, and nothing else.")
    if entry["dtype"] not in ELEMENT_SIZE:
        raise FileError(f"{origin}: tensor '{name}' has dtype {entry['dtype']!r}, not one of {', '.join(ELEMENT_SIZE)}.")
    if not (whole(entry["shape"]) and whole(entry["data_offsets"]) and len(entry["data_offsets"]) == 2):
        raise FileError(f"{origin}: tensor '{name}' has a shape or data_offsets that are not whole numbers.")
    begin, end = entry["data_offsets"]
    if not begin <= end <= available:
        raise FileError(f"{origin}: tensor '{name}' has the bytes {begin} to {end}, but there are {available}.")
    if end - begin != prod(entry["shape"]) * ELEMENT_SIZE[entry["dtype"]]:
        raise FileError(f"{origin}: tensor '{name}' has {end - begin} bytes, which does not fit its shape and dtype.")
    return begin, end


def serialise(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a file. Tensors by falling element size, so that each is aligned."""
    header, parts, position = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name, tensor in sorted(tensors.items(), key=lambda item: (-ELEMENT_SIZE[item[1].dtype], item[0])):
        end = position + prod(tensor.shape) * ELEMENT_SIZE[tensor.dtype]
        if end - position != len(tensor.data):
            raise ValueError(f"tensor '{name}' has {len(tensor.data)} bytes, but its shape and dtype need {end - position}.")
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [position, end]}
        parts.append(tensor.data)
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def write(path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes a file through a temporary one beside it and a rename, so that `path` is never half written."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(serialise(tensors, metadata))
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
