# SPDX-License-Identifier: Apache-2.0
import importlib.util
import math
import unittest

import numpy as np

from fljsd import formats
from fljsd.safetensors import Tensor


def has(module):
    return importlib.util.find_spec(module) is not None


def bf16_value(bits):
    return float(formats.decode(Tensor("BF16", (1,), np.uint16(bits).tobytes()))[0])


class Bf16(unittest.TestCase):
    def test_every_value_survives(self):
        """Catches: a decoder or encoder that is wrong for subnormals, infinities or the sign of zero."""
        every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
        values = formats.decode(Tensor("BF16", every.shape, every.tobytes()))
        numbers = ~np.isnan(values)
        np.testing.assert_array_equal(formats.bf16_bits(values)[numbers], every[numbers])
        self.assertTrue(np.isnan(formats.decode(formats.encode(values[~numbers], "bf16"))).all())

    def test_rounds_once_to_nearest_even(self):
        """Catches: double rounding by way of float32, and ties rounded away from zero."""
        for bits in (0x0000, 0x0001, 0x007F, 0x0080, 0x3F80, 0x3F81, 0x7F7E):
            low, high = bf16_value(bits), bf16_value(bits + 1)
            middle = (low + high) / 2  # exact in float64
            even = bits if bits % 2 == 0 else bits + 1
            for value, expected in ((middle, even), (np.nextafter(middle, 0), bits), (np.nextafter(middle, 1e40), bits + 1)):
                self.assertEqual(int(formats.bf16_bits(value)), expected, (hex(bits), value))
                self.assertEqual(int(formats.bf16_bits(-value)), expected | 0x8000)

    def test_overflow_and_underflow(self):
        """Catches: a carry out of the exponent, or float32's range taken for bf16's."""
        largest = bf16_value(0x7F7F)
        tie = largest * (1 + 2.0**-9)  # halfway to 2^128, up to a rounding that is far smaller
        self.assertEqual(int(formats.bf16_bits(largest)), 0x7F7F)
        self.assertEqual(int(formats.bf16_bits(tie * 1.001)), 0x7F80)
        self.assertEqual(int(formats.bf16_bits(1e300)), 0x7F80)
        self.assertEqual(int(formats.bf16_bits(-math.inf)), 0xFF80)
        self.assertEqual(int(formats.bf16_bits(2.0**-134)), 0)  # half the smallest: a tie with the even 0
        self.assertEqual(int(formats.bf16_bits(2.0**-134 * 1.0001)), 1)
        self.assertEqual(int(formats.bf16_bits(1e-300)), 0)

    @unittest.skipUnless(has("ml_dtypes"), "ml_dtypes is not installed")
    def test_ml_dtypes_keeps_its_bits(self):
        import ml_dtypes

        tensor = formats.encode(np.array([1.5, -0.0], ml_dtypes.bfloat16))
        self.assertEqual(tensor, Tensor("BF16", (2,), np.array([0x3FC0, 0x8000], "<u2").tobytes()))
        self.assertEqual(formats.decode_as_stored(tensor).dtype, ml_dtypes.bfloat16)


class Encoding(unittest.TestCase):
    def test_formats_are_kept(self):
        for dtype, name in ((np.float16, "F16"), (np.float32, "F32"), (np.float64, "F64"), (np.int64, "I64")):
            tensor = formats.encode(np.array([[1, 2, 3]], dtype))
            self.assertEqual((tensor.dtype, tensor.shape), (name, (1, 3)))
            np.testing.assert_array_equal(formats.decode(tensor), [[1, 2, 3]])

    def test_layout_does_not_matter(self):
        """Catches: bytes taken from a transposed or big-endian array as they lie."""
        array = np.arange(6.0).reshape(2, 3)
        for same in (np.asfortranarray(array), array.astype(">f8"), np.repeat(array, 2, axis=1)[:, ::2], array.tolist()):
            np.testing.assert_array_equal(formats.decode(formats.encode(same)), array)
        self.assertEqual(formats.encode(array.T).shape, (3, 2))

    def test_refuses_what_has_no_format(self):
        for bad in (np.array([1j]), np.array(["a"]), np.array([None])):
            with self.assertRaises(ValueError):
                formats.encode(bad)
        with self.assertRaises(ValueError):
            formats.encode([1.0], "f8")

    @unittest.skipUnless(has("torch"), "PyTorch is not installed")
    def test_torch_tensors(self):
        """Catches: gradients that come as non-contiguous or bf16 tensors."""
        import torch

        for dtype, name in ((torch.bfloat16, "BF16"), (torch.float16, "F16"), (torch.float32, "F32"), (torch.float64, "F64")):
            tensor = formats.encode(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype, requires_grad=True).T)
            self.assertEqual(tensor.dtype, name)
            np.testing.assert_array_equal(formats.decode(tensor), [[1, 3], [2, 4]])


if __name__ == "__main__":
    unittest.main()
