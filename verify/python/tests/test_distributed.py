# SPDX-License-Identifier: Apache-2.0
"""fljsd.distributed without a GPU: the mirror of the header, and every call of the library through its prototype."""
import ctypes
import re
import unittest
from pathlib import Path
from unittest import mock

from fljsd import distributed, library
from library_on_host import LibraryOnHost

HEADER = Path(__file__).resolve().parents[3] / "cuda" / "fljsd_distributed.h"


class Header(unittest.TestCase):
    def test_structure(self):
        """Catches: a field that the header has gained, moved or renamed."""
        body = re.search(r"typedef struct fljsd_ranks \{(.*?)\} fljsd_ranks;", HEADER.read_text(), re.S).group(1)
        code = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        names = [line.split()[-1].lstrip("*") for line in code.split(";") if line.strip()]
        self.assertEqual(names, [name for name, _ in distributed.Ranks._fields_])
        self.assertEqual(ctypes.sizeof(distributed.Ranks), 32)

    def test_functions(self):
        """Catches: a function that was renamed, or another number of arguments."""
        text = HEADER.read_text()
        self.assertRegex(text, rf"FLJSD_COMMUNICATOR_ID_BYTES {distributed.ID_BYTES}\b")
        for name, (_, arguments) in distributed.SIGNATURES.items():
            declared = re.search(rf"fljsd_status {name}\((.*?)\);", text, re.S)
            self.assertIsNotNone(declared, name)
            self.assertEqual(len(declared.group(1).split(",")), len(arguments), name)


class Calls(unittest.TestCase):
    def setUp(self):
        distributed.load.cache_clear()
        self.addCleanup(distributed.load.cache_clear)

    def play(self, **options):
        host = LibraryOnHost(**options)
        patch = mock.patch.object(library, "load", lambda: host)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(lambda: self.assertEqual(host.faults, []))
        return host

    def plan(self, gradients):
        vocab = distributed.Communicator(distributed.new_id(), 2, 1, 5000)
        fields = dict(tokens=3, vocab=5, student_hidden=2, teacher_hidden=2, beta=0.25, gradients=gradients)
        return distributed.Plan(fields, vocab, None)

    def test_every_call(self):
        """Catches: a structure by value where the library takes an address, a missing argument, a size that is not the
        structure's, an address that does not arrive."""
        for gradients, run in ((0, "fljsd_forward"), (library.INPUT_GRAD, "fljsd_forward_backward")):
            host = self.play()
            distributed.load.cache_clear()
            plan = self.plan(gradients)
            self.assertEqual(plan.workspace_bytes, host.WORKSPACE_BYTES)
            loss, room = ctypes.c_float(), ctypes.create_string_buffer(host.WORKSPACE_BYTES)
            plan.run({"student_input": 64, "loss": ctypes.addressof(loss)}, ctypes.addressof(room), 7)
            plan.wait(7, 2500)
            self.assertEqual(loss.value, 1.5)
            self.assertEqual((host.configs[0].vocab, host.configs[0].beta), (5, 0.25))
            self.assertEqual(host.ranks, [(0x201, None, 0)])
            self.assertEqual((host.tensors[0].student_input, host.tensors[0].labels), (64, None))
            del plan
            self.assertEqual(host.names(), ["fljsd_communicator_id", "fljsd_communicator_create", "fljsd_config_init",
                                            "fljsd_plan_create_distributed", "fljsd_plan_workspace_bytes", run,
                                            "fljsd_plan_wait", "fljsd_plan_destroy"])
            given = dict(host.calls)
            self.assertEqual(given["fljsd_communicator_create"][1:4], (2, 1, 5000))
            self.assertEqual(given["fljsd_plan_workspace_bytes"][:2], (0x5001, 1 if gradients else 0))
            self.assertEqual(given[run][4], 7)
            self.assertEqual(given["fljsd_plan_wait"], (0x5001, 7, 2500))
            self.assertEqual(given["fljsd_plan_destroy"], (0x5001,))

    def test_a_refusal_is_an_error(self):
        """Catches: a status that nobody looks at."""
        room = ctypes.create_string_buffer(LibraryOnHost.WORKSPACE_BYTES)
        for name in ("fljsd_communicator_id", "fljsd_communicator_create", "fljsd_config_init",
                     "fljsd_plan_create_distributed", "fljsd_plan_workspace_bytes", "fljsd_forward", "fljsd_plan_wait"):
            self.play(fails=name)
            distributed.load.cache_clear()
            loss = ctypes.c_float()
            with self.assertRaisesRegex(library.LibraryError, "A sentence of the library", msg=name):
                plan = self.plan(0)
                plan.run({"loss": ctypes.addressof(loss)}, ctypes.addressof(room), 0)
                plan.wait(0, 1000)

    def test_an_unknown_field(self):
        """Catches: a misspelt field of fljsd_tensors that is passed over."""
        self.play()
        with self.assertRaises(TypeError):
            self.plan(0).run({"student_inputs": 64}, 0, 0)


if __name__ == "__main__":
    unittest.main()
