# SPDX-License-Identifier: Apache-2.0
"""Plans over several GPUs through ctypes: cuda/fljsd_distributed.h without PyTorch."""
from __future__ import annotations

import ctypes
import functools
import sys
from ctypes import POINTER, c_int32, c_int64, c_uint64, c_void_p

from . import library
from .library import Config, Tensors

ID_BYTES = 128


class Ranks(ctypes.Structure):
    """fljsd_ranks."""

    _fields_ = [("struct_size", c_uint64), ("vocab", c_void_p), ("tokens", c_void_p),
                ("sum_weight_gradients", c_int32), ("tokens_compared", c_int32)]


SIGNATURES = {
    "fljsd_communicator_id": (c_int32, [c_void_p]),
    "fljsd_communicator_create": (c_int32, [c_void_p, c_int32, c_int32, c_int64, POINTER(c_void_p)]),
    "fljsd_plan_create_distributed": (c_int32, [POINTER(Config), POINTER(Ranks), POINTER(c_void_p)]),
    "fljsd_plan_wait": (c_int32, [c_void_p, c_void_p, c_int64]),
}


@functools.lru_cache(maxsize=None)
def load():
    """The library, with the functions of both headers declared."""
    loaded = library.load()
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def new_id() -> bytes:
    """An id for one communicator, to be brought to all of its ranks."""
    made = ctypes.create_string_buffer(ID_BYTES)
    library.check(load().fljsd_communicator_id(made))
    return made.raw


def _fill(structure, fields: dict):
    """Sets fields; ctypes would take a name that is none of them for an attribute."""
    unknown = fields.keys() - {name for name, _ in structure._fields_}
    if unknown:
        raise TypeError(f"{type(structure).__name__} has no field {min(unknown)!r}.")
    for name, value in fields.items():
        setattr(structure, name, value)
    return structure


class Communicator:
    """This rank's end of a communicator, for the current device. Collective. Lives until the process ends: destroying one
    waits for the other ranks."""

    def __init__(self, id_: bytes, ranks: int, rank: int, timeout_ms: int):
        self.handle = c_void_p()
        library.check(load().fljsd_communicator_create(id_, ranks, rank, timeout_ms, self.handle))


class Plan:
    """A distributed plan and the size of its workspace. Collective.

    fields: those of fljsd_config that differ from the defaults; vocab, tokens: a Communicator, or None where that dimension
    is not cut. With gradients it is for the pass with gradients, else for the forward pass. tokens_compared: collective
    over `vocab` only, as fljsd_ranks says."""

    def __init__(self, fields: dict, vocab: Communicator | None, tokens: Communicator | None, tokens_compared=False):
        self._load, config = load(), Config()
        library.check(self._load.fljsd_config_init(config, ctypes.sizeof(config)))
        _fill(config, fields)
        ranks = Ranks(ctypes.sizeof(Ranks), *(None if c is None else c.handle for c in (vocab, tokens)), 0,
                      tokens_compared)
        self._handle = c_void_p()
        library.check(self._load.fljsd_plan_create_distributed(config, ranks, self._handle))
        run_pass = library.FORWARD_BACKWARD if config.gradients else library.FORWARD
        self._run = self._load.fljsd_forward_backward if config.gradients else self._load.fljsd_forward
        size = c_uint64()
        library.check(self._load.fljsd_plan_workspace_bytes(self._handle, run_pass, size))
        self.workspace_bytes = size.value

    def run(self, addresses: dict, workspace: int | None, stream: int) -> None:
        """Enqueues the pass on the stream. Collective. addresses: of the fields of fljsd_tensors that are given."""
        tensors = _fill(Tensors(ctypes.sizeof(Tensors)), addresses)
        library.check(self._run(self._handle, ctypes.byref(tensors), workspace, self.workspace_bytes, stream))

    def wait(self, stream: int, timeout_ms: int) -> None:
        """Until the stream has done what was enqueued. LibraryError after timeout_ms or when a rank failed; the
        communicators are then of no further use."""
        library.check(self._load.fljsd_plan_wait(self._handle, stream, timeout_ms))

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle and sys is not None and not sys.is_finalizing():  # CUDA may be gone before the interpreter is
            self._load.fljsd_plan_destroy(handle)
