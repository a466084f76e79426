# SPDX-License-Identifier: Apache-2.0
import math
import os
import unittest
from unittest import mock

import numpy as np

import fljsd


@unittest.skipUnless("FLJSD" in os.environ, "the environment variable FLJSD does not name the program")
class Program(unittest.TestCase):
    # One token, two entries: q = (1/2, 1/2) and p = (1/4, 3/4). With h the binary entropy and beta = 1/2 the divergence
    # is h(3/8) - (h(1/2) + h(1/4)) / 2.
    two = (np.ones((1, 1)), np.zeros((2, 1)), np.ones((1, 1)), np.array([[0.0], [math.log(3)]]))

    @staticmethod
    def expected():
        def h(x):
            return -x * math.log(x) - (1 - x) * math.log1p(-x)

        return h(0.375) - (h(0.5) + h(0.25)) / 2

    def test_truth_of_arrays(self):
        """Catches: student and teacher exchanged, or a case that is not written as it was given."""
        answer = fljsd.truth(*self.two)
        # A few roundings of numbers below 1: 16 u = 2^-49.
        self.assertTrue(abs(answer.loss - self.expected()) <= 2.0**-49)
        self.assertEqual(answer.student_weight_grad.shape, (2, 1))
        self.assertTrue(answer.student_weight_grad[0, 0] > 0 > answer.student_weight_grad[1, 0])  # q should become p

    def test_certified_truth(self):
        answer = fljsd.truth(*self.two, certified=True, grad=False, beta=0)
        low, high = map(float, answer.loss_bounds)
        self.assertTrue(low <= answer.loss <= high and answer.settled)
        self.assertIsNone(answer.student_weight_grad)
        self.assertIsNone(fljsd.truth(*self.two, certified=True, reduction="none").loss)

    def test_check(self):
        """Catches: a verdict that passes whatever it is given."""
        case = fljsd.generate("kaiming", tokens=3, hidden=5, vocab=7, seed=2, bias=True, reduction="sum")
        right = fljsd.truth(case)
        result = {"loss": right.loss, "token_loss": right.token_loss}
        verdict = fljsd.check(result, case, accuracy_class="float64")
        self.assertTrue(verdict.passed)
        self.assertIn("token_loss", str(verdict))
        self.assertIn("<table>", verdict._repr_html_())
        for wrong in (right.loss * 1.01, math.nan, 0):
            verdict = fljsd.check(dict(result, loss=wrong), case, accuracy_class="float64")
            self.assertFalse(verdict.passed)
            self.assertEqual(verdict.worst["quantity"], "loss")

    def test_a_recipe_is_a_case(self):
        case = fljsd.generate(recipe="family=kaiming tokens=2 hidden=3 vocab=5 seed=1 beta=0.25")
        self.assertEqual((case.tokens, case.student_hidden, case.vocab, case.beta), (2, 3, 5, 0.25))

    def test_refusals_are_sentences_of_the_program(self):
        for call in (lambda: fljsd.generate("kaimin", tokens=1, hidden=1, vocab=1), lambda: fljsd.generate(recipe="x"),
                     lambda: fljsd.check({"loss": 0.0, "token_loss": [1.0]}, fljsd.Case(*self.two, labels=[1]),
                                         accuracy_class="exact")):
            with self.assertRaises(fljsd.ProgramError) as caught:
                call()
            self.assertRegex(str(caught.exception), r"^fljsd \w+ failed: .*[.?]$")


class Finding(unittest.TestCase):
    def test_a_program_that_is_not_there(self):
        with mock.patch.dict(os.environ, {"FLJSD": "/nowhere/fljsd"}), self.assertRaises(fljsd.ProgramError) as caught:
            fljsd.find_program()
        self.assertIn("/nowhere/fljsd", str(caught.exception))
        nothing = mock.patch("fljsd.program.checkouts", list)
        with mock.patch.dict(os.environ, {"FLJSD": "", "PATH": ""}), nothing, self.assertRaises(fljsd.ProgramError) as caught:
            fljsd.find_program()
        self.assertIn("set the environment variable FLJSD", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
