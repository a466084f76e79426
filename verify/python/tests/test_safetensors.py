# SPDX-License-Identifier: Apache-2.0
import json
import struct
import tempfile
import unittest
from pathlib import Path

from fljsd import safetensors
from fljsd.safetensors import FileError, Tensor

GOLDEN = Path(__file__).resolve().parents[3] / "data" / "golden"


def file_of(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(dtype="F32", shape=(1,), begin=0, end=4):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


class Reading(unittest.TestCase):
    def test_reads_what_it_wrote(self):
        """Catches: offsets that do not follow the order of the bytes, metadata that is lost."""
        tensors = {"b": Tensor("BF16", (3,), bytes(range(6))), "a": Tensor("F64", (0, 4), b""),
                   "c": Tensor("I64", (1,), bytes(range(8)))}
        read, metadata = safetensors.parse(safetensors.serialise(tensors, {"beta": "0.5"}), "it")
        self.assertEqual(read, tensors)
        self.assertEqual(metadata, {"beta": "0.5"})

    def test_wide_elements_come_first_so_that_all_are_aligned(self):
        content = safetensors.serialise({"a": Tensor("BF16", (1,), b"12"), "z": Tensor("F64", (1,), b"12345678")})
        (size,) = struct.unpack_from("<Q", content)
        self.assertEqual(size % 8, 0)
        self.assertEqual(json.loads(content[8 : 8 + size])["z"]["data_offsets"], [0, 8])

    def test_reads_files_of_the_program(self):
        """Catches: a difference between this reader and the C++ writer."""
        files = sorted(GOLDEN.glob("*.safetensors"))
        self.assertGreater(len(files), 20)
        for path in files:
            tensors, metadata = safetensors.read(path)
            self.assertIn("student_input", tensors)
            self.assertIn("beta", metadata)
            self.assertEqual(safetensors.parse(safetensors.serialise(tensors, metadata), "it"), (tensors, metadata))

    def test_refuses_what_the_format_forbids(self):
        """Catches: a broken file that is read as if it were whole."""
        good = file_of({"x": entry()}, b"1234")
        self.assertEqual(safetensors.parse(good, "it")[0]["x"].shape, (1,))
        for bad, said in {
            b"": "at least 8",
            b"1234567": "at least 8",
            struct.pack("<Q", 100) + b"{}": "only 2 follow",
            file_of(b"{"): "not valid",
            file_of(b"\xff"): "not valid",
            file_of(b"[1]"): "not a JSON object",
            file_of(b'{"x": 1, "x": 2}'): "twice",
            file_of({"__metadata__": {"a": 1}}): "object of strings",
            file_of({"x": entry("F8", (4,))}, b"1234"): "dtype",
            file_of({"x": entry(shape=(2,))}, b"1234"): "does not fit",
            file_of({"x": entry(shape=(-1,))}, b"1234"): "not whole",
            file_of({"x": entry(shape=(True,))}, b"1234"): "not whole",
            file_of({"x": entry(end=8, shape=(2,))}, b"1234"): "there are 4",
            file_of({"x": entry(begin=4, end=0)}, b"1234"): "there are 4",
            file_of({"x": {"dtype": "F32", "shape": [1]}}, b"1234"): "must have dtype",
            file_of({"x": dict(entry(), more=1)}, b"1234"): "nothing else",
            file_of({"x": entry()}, b"12345678"): "after the last",
            file_of({"x": entry(begin=4, end=8)}, b"12345678"): "hole",
            file_of({"x": entry(), "y": entry()}, b"1234"): "overlap",
        }.items():
            with self.subTest(bad=bad), self.assertRaises(FileError) as caught:
                safetensors.parse(bad, "the-file")
            self.assertIn("the-file", str(caught.exception))
            self.assertIn(said, str(caught.exception))

    def test_every_shorter_file_is_refused(self):
        """Catches: a length that is trusted before it is compared with what is there."""
        good = safetensors.serialise({"x": Tensor("F32", (2,), b"12345678")}, {"a": "b"})
        for size in range(len(good)):
            with self.assertRaises(FileError):
                safetensors.parse(good[:size], "it")


class Writing(unittest.TestCase):
    def test_a_failed_write_leaves_nothing_behind(self):
        """Catches: a half-written file, or a temporary one that stays."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.safetensors"
            with self.assertRaises(ValueError):
                safetensors.write(path, {"x": Tensor("F32", (2,), b"1")})
            self.assertEqual(list(Path(folder).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
