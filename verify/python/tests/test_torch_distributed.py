# SPDX-License-Identifier: Apache-2.0
"""fljsd.torch_distributed without a GPU: what it says of itself and refuses. examples/distributed/torchrun_example.py
compares with one GPU."""
import ctypes
import re
import unittest
from pathlib import Path

try:
    import torch
    from fljsd import torch_distributed
except ImportError:
    torch = None

HEADER = Path(__file__).resolve().parents[3] / "cuda" / "fljsd_distributed.h"


@unittest.skipIf(torch is None, "PyTorch is not installed")
class TorchDistributed(unittest.TestCase):
    def test_structure_has_the_fields_of_the_header(self):
        body = re.search(r"typedef struct fljsd_ranks \{(.*?)\} fljsd_ranks;", HEADER.read_text(), re.S).group(1)
        code = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        names = [line.split()[-1].lstrip("*") for line in code.split(";") if line.strip()]
        self.assertEqual(names, [name for name, _ in torch_distributed.Ranks._fields_])
        self.assertEqual(ctypes.sizeof(torch_distributed.Ranks), 32)

    def test_every_function_is_in_the_header(self):
        text = HEADER.read_text()
        for name in torch_distributed._SIGNATURES:
            self.assertIn(f"fljsd_status {name}(", text)

    def test_refuses_what_has_no_scalar(self):
        tensors = [torch.zeros(2, 2)] * 4
        with self.assertRaisesRegex(ValueError, "reduction is 'none', but it must be 'batchmean' or 'sum'"):
            torch_distributed.parallel_linear_jsd(*tensors, reduction="none")
        with self.assertRaisesRegex(ValueError, "valid_vocab is 0"):
            torch_distributed.parallel_linear_jsd(*tensors, valid_vocab=0)


if __name__ == "__main__":
    unittest.main()
