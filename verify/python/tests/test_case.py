# SPDX-License-Identifier: Apache-2.0
import importlib.util
import tempfile
import unittest
from pathlib import Path

import numpy as np

from fljsd import Case, FileError


def has(module):
    return importlib.util.find_spec(module) is not None


def small_case(**changes):
    given = dict(student_input=np.ones((2, 3)), student_weight=np.ones((5, 3)), teacher_input=np.ones((2, 4)),
                 teacher_weight=np.ones((5, 4)), dtype="bf16")
    return Case(**dict(given, **changes))


class Construction(unittest.TestCase):
    def test_sizes_and_defaults(self):
        case = small_case()
        self.assertEqual((case.tokens, case.vocab, case.student_hidden, case.teacher_hidden), (2, 5, 3, 4))
        self.assertEqual((case.beta, case.temperature, case.reduction, case.valid_vocab), (0.5, 1.0, "batchmean", 5))
        self.assertIsNone(case.labels)
        self.assertEqual(case.divisor, 2)

    def test_counted_tokens(self):
        """Catches: ignored tokens that are counted, and a division by zero where none counts."""
        case = small_case(labels=[7, -1], ignore_index=-1)
        self.assertEqual(case.counted.tolist(), [True, False])
        self.assertEqual(case.divisor, 1)
        self.assertEqual(small_case(labels=[-100, -100]).divisor, 1)
        self.assertEqual(small_case(reduction="sum").divisor, 1)

    def test_refuses_with_the_name_of_what_is_wrong(self):
        for changes, name in (
            (dict(beta=1.5), "beta"), (dict(beta=float("nan")), "beta"), (dict(temperature=0), "temperature"),
            (dict(reduction="mean"), "reduction"), (dict(valid_vocab=6), "valid_vocab"), (dict(labels=[1]), "labels"),
            (dict(labels=[1.0, 2.0]), "labels"), (dict(student_weight=np.ones((5, 4))), "student_weight"),
            (dict(teacher_weight=np.ones((4, 4))), "teacher_weight"), (dict(student_input=np.ones(3)), "student_input"),
            (dict(student_bias=np.ones(4)), "student_bias"),
        ):
            with self.subTest(name=name), self.assertRaises(FileError) as caught:
                small_case(**changes)
            self.assertIn(name, str(caught.exception))

    def test_lying_elsewhere_changes_no_value(self):
        """Catches: a layout that shifts elements, that is packed again, or padding that is not NaN."""
        case = small_case(student_input=np.arange(6.0).reshape(2, 3), student_bias=np.arange(5.0), labels=[0, 1])
        plain = {name: getattr(case, name).copy() for name in ("student_input", "student_bias", "labels")}
        case.lay_out(row_padding=2, misalignment=5)
        for name, values in plain.items():
            self.assertEqual(getattr(case, name).tolist(), values.tolist())
        x = case.student_input
        self.assertEqual((x.strides, x.ctypes.data % 64), ((20, 4), 4))  # whole elements of float32
        self.assertTrue(np.isnan(np.lib.stride_tricks.as_strided(x, (2, 5), (20, 4))[0, 3:]).all())
        self.assertEqual(case.changed(), [])
        x[1, 2] = 7
        self.assertEqual(case.changed(), ["student_input"])
        with self.assertRaises(ValueError):
            case.lay_out(misalignment=64)
        empty = small_case(student_input=np.ones((0, 3)), teacher_input=np.ones((0, 4))).lay_out(1, 2)
        self.assertEqual(empty.student_input.shape, (0, 3))

    @unittest.skipUnless(has("torch"), "PyTorch is not installed")
    def test_lies_elsewhere_in_torch_too(self):
        case = small_case(student_input=np.arange(6.0).reshape(2, 3), student_bias=np.arange(5.0)).lay_out(2, 5)
        t = case.torch("cpu")
        self.assertEqual((t.student_input.stride(), t.student_input.data_ptr() % 64), ((5, 1), 4))
        self.assertEqual(t.student_input.tolist(), case.student_input.tolist())
        self.assertEqual(t.student_bias.tolist(), [0, 1, 2, 3, 4])
        answer = t.answer(loss=(t.student_input.float() @ t.student_weight.float().T).sum())
        self.assertEqual(answer["student_input_grad"].float().tolist(), [[5, 5, 5]] * 2)
        self.assertEqual(case.changed(), [])

    def test_file_round_trip(self):
        """Catches: an option that is lost or rounded on the way."""
        case = small_case(beta=0.1, temperature=1 / 3, labels=[3, -7], ignore_index=-7, reduction="none", valid_vocab=4,
                          student_bias=np.arange(5.0))
        case.provenance["recipe"] = "mine"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.safetensors"
            case.write(path)
            back = Case.read(path)
        for name in ("beta", "temperature", "ignore_index", "reduction", "valid_vocab", "tensors", "provenance"):
            self.assertEqual(getattr(back, name), getattr(case, name), name)


class Views(unittest.TestCase):
    def test_arrays_hold_the_values_exactly(self):
        case = small_case(student_input=np.full((2, 3), 1 / 3))
        self.assertEqual(case.student_input.dtype, np.float32)
        self.assertEqual(case.student_input[0, 0], 171 / 512)  # 1/3 to the 8 bits of bf16: 0.01010101 011 binary
        self.assertEqual(small_case(dtype="f64").student_input.dtype, np.float64)

    def test_writing_to_an_input_shows(self):
        """Catches: a candidate that uses its inputs as scratch space."""
        case = small_case()
        self.assertEqual(case.changed(), [])
        case.student_weight[0, 0] = 2
        self.assertEqual(case.changed(), ["student_weight"])

    @unittest.skipUnless(has("torch"), "PyTorch is not installed")
    def test_torch_view(self):
        import torch

        case = small_case(labels=[1, -100])
        t = case.torch("cpu")
        self.assertEqual(t.student_input.dtype, torch.bfloat16)
        self.assertTrue(t.student_input.requires_grad and not t.teacher_input.requires_grad)
        self.assertIsNone(t.student_bias)
        answer = t.answer(loss=(t.student_input.sum() * 3), token_loss=None)
        self.assertTrue((answer["student_input_grad"] == 3).all())
        self.assertTrue((answer["student_weight_grad"] == 0).all())
        self.assertEqual(case.changed(), [])
        with torch.no_grad():
            t.student_input.mul_(2)
        self.assertEqual(case.changed(), ["student_input"])

    @unittest.skipUnless(has("jax"), "JAX is not installed")
    def test_jax_view(self):
        case = small_case(student_bias=np.zeros(5), reduction="none")
        t = case.jax()
        self.assertEqual(t.student_input.dtype.name, "bfloat16")
        answer = t.answer(lambda x, w, b: (None, x.sum(axis=1) * 3 + b.sum()))
        np.testing.assert_array_equal(np.asarray(answer["student_input_grad"], np.float32), np.full((2, 3), 3))
        np.testing.assert_array_equal(np.asarray(answer["student_bias_grad"], np.float32), np.full(5, 2))
        with self.assertRaises(ValueError):
            small_case(dtype="f64").jax()


if __name__ == "__main__":
    unittest.main()
