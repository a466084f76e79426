# SPDX-License-Identifier: Apache-2.0
"""libfljsd_cuda.so played by Python: functions behind the very ctypes prototypes that the package declares, so that an
argument which ctypes would refuse, or pass on as something else, is seen to without a GPU."""
import ctypes

from fljsd import library
from fljsd.distributed import ID_BYTES, SIGNATURES, Ranks


class LibraryOnHost:
    """Records what it is given; answers every call with FLJSD_OK, or fails the function that `fails` names.

    The loss of a pass is 1.5, and gradients are `of(name)`, as many floats as `sizes[name]` says. What no caller may do is
    in `faults`: an exception would end with the callback that it is raised in."""

    WORKSPACE_BYTES = 4096

    def __init__(self, sizes=None, fails=""):
        self.calls, self.configs, self.ranks, self.compared, self.tensors, self.faults = [], [], [], [], [], []
        self.sizes, self.fails = sizes or {}, fails
        for name, (result, arguments) in {**library.SIGNATURES, **SIGNATURES}.items():
            setattr(self, name, ctypes.CFUNCTYPE(result, *arguments)(self._player(name)))

    def _player(self, name):
        def play(*given):
            self.calls.append((name, given))
            if name == self.fails:
                return 1
            try:
                return getattr(self, "play_" + name, lambda *_: 0)(*given)
            except Exception as fault:
                self.faults.append(f"{name}: {fault!r}")
                return 1
        return play

    def play_fljsd_last_error(self):
        return ctypes.cast(ctypes.c_char_p(b"A sentence of the library."), ctypes.c_void_p).value

    def play_fljsd_communicator_id(self, to):
        ctypes.memmove(to, bytes(range(ID_BYTES)), ID_BYTES)
        return 0

    def play_fljsd_communicator_create(self, id_, ranks, rank, timeout_ms, to):
        assert ctypes.string_at(id_, ID_BYTES) == bytes(range(ID_BYTES)), "the id"
        to[0] = 0x100 * ranks + rank
        return 0

    def play_fljsd_config_init(self, config, size):
        assert size == ctypes.sizeof(library.Config), "the size of fljsd_config"
        config[0].struct_size = size
        return 0

    def play_fljsd_plan_create_distributed(self, config, ranks, to):
        copy = library.Config.from_buffer_copy(config[0])
        assert copy.struct_size == ctypes.sizeof(library.Config), "config.struct_size"
        assert ranks[0].struct_size == ctypes.sizeof(Ranks), "ranks"
        self.configs.append(copy)
        self.ranks.append((ranks[0].vocab, ranks[0].tokens, ranks[0].sum_weight_gradients))
        self.compared.append(ranks[0].tokens_compared)
        to[0] = 0x5000 + len(self.configs)
        return 0

    def play_fljsd_plan_workspace_bytes(self, plan, run_pass, to):
        to[0] = self.WORKSPACE_BYTES
        return 0

    def _run(self, plan, tensors, workspace, workspace_bytes, stream):
        given = library.Tensors.from_buffer_copy(ctypes.string_at(tensors, ctypes.sizeof(library.Tensors)))
        assert given.struct_size == ctypes.sizeof(library.Tensors), "tensors.struct_size"
        assert workspace and workspace_bytes == self.WORKSPACE_BYTES, "the workspace"
        self.tensors.append(given)
        ctypes.cast(given.loss, ctypes.POINTER(ctypes.c_float))[0] = 1.5
        for name, count in self.sizes.items():
            address = getattr(given, name)
            values = (ctypes.c_float * count)(*self.of(name))
            ctypes.memmove(address, values, ctypes.sizeof(values))
        return 0

    play_fljsd_forward = play_fljsd_forward_backward = _run

    def of(self, name):
        return [float(at + len(name)) for at in range(self.sizes[name])]

    def names(self):
        return [name for name, _ in self.calls]
