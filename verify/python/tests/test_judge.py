# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

import fljsd

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
import numpy_candidate  # noqa: E402

PLAIN = ["kaiming", "published"]  # families without infinities, so that the runs are short


def judge(function, **options):
    with np.errstate(all="ignore"):
        return fljsd.judge(function, **dict(dict(cases=150, seed=1, accuracy_class="float64"), **options))


@unittest.skipUnless("FLJSD" in os.environ, "the environment variable FLJSD does not name the program")
class Judge(unittest.TestCase):
    def test_a_right_function_passes(self):
        """Catches: a right implementation convicted, or cases that never reach the function."""
        calls = []

        def function(case):
            calls.append(case)
            return numpy_candidate.linear_jsd(case)

        verdict = judge(function)
        self.assertTrue(verdict.passed, str(verdict))
        # Evaluations of the minimiser or replays may come on top of those that the report counts as cases.
        self.assertGreaterEqual(len(calls), verdict.cases)
        self.assertGreater(verdict.cases, 100)
        self.assertIn("Passed", str(verdict))
        self.assertIn("token_loss", str(verdict.table()))
        self.assertIn("<table>", verdict._repr_html_())
        self.assertLessEqual(verdict.worst.ratio, 1)
        with tempfile.TemporaryDirectory() as folder:
            verdict.write_worst_case(Path(folder) / "worst.safetensors")
            self.assertTrue(fljsd.Case.read(Path(folder) / "worst.safetensors").vocab > 0)

    def test_a_wrong_closure_is_convicted_and_its_case_reproduces(self):
        """Catches: a verdict whose file does not show the fault."""
        factor = 1.01

        def function(case):
            result = numpy_candidate.linear_jsd(case)
            result["student_input_grad"] = result["student_input_grad"] * factor
            return result

        verdict = judge(function, families=PLAIN)
        self.assertFalse(verdict.passed)
        finding = verdict.findings[0]
        self.assertEqual(finding.quantity, "student_input_grad")
        case = finding.case()
        self.assertFalse(fljsd.check(function(case), case, accuracy_class="float64").passed)
        again = judge(function, recipe=finding.recipe, cases=None)
        self.assertEqual(again.findings[0].quantity, "student_input_grad")
        self.assertIn(finding.recipe, str(verdict))

    def test_an_exception_is_a_finding_with_its_traceback(self):
        def function(case):
            raise RuntimeError("out of luck")

        verdict = judge(function, families=PLAIN, cases=20)
        self.assertFalse(verdict.passed)
        self.assertEqual(verdict.findings[0].manner, "error")
        self.assertIn("out of luck", verdict.findings[0].text)
        self.assertIn("out of luck", verdict.traceback)

    def test_what_is_lacking_is_not_asked_for(self):
        wants = set()

        def function(case):
            wants.update(case.want)
            self.assertEqual(case.temperature, 1)
            result = numpy_candidate.linear_jsd(case)
            return result["loss"]

        verdict = judge(function, lacks=["grad", "token_loss", "temperature", "reduction_none"], cases=60)
        self.assertTrue(verdict.passed, str(verdict))
        self.assertEqual(wants, {"loss"})

    def test_unsupported_cases_are_counted_and_nothing_judged_is_no_pass(self):
        """Catches: a candidate that passes by refusing everything."""
        def function(case):
            raise fljsd.Unsupported("anything at all")

        verdict = judge(function, cases=20)
        self.assertFalse(verdict.passed or verdict.findings)
        self.assertGreaterEqual(sum(verdict.skipped.values()), 20)
        self.assertIn("Nothing was judged", str(verdict))

    def test_a_refused_argument_is_a_sentence(self):
        with self.assertRaises(fljsd.ProgramError) as caught:
            judge(lambda case: 0, families=["kaimin"])
        self.assertIn("kaimin", str(caught.exception))
        with self.assertRaises(ValueError):
            judge(lambda case: 0, lacks=["nothing"])

    def test_an_interrupt_ends_the_engine(self):
        """Catches: an engine that goes on for ever after Ctrl-C in a notebook."""
        def function(case):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            judge(function, seconds=60, cases=None)


if __name__ == "__main__":
    unittest.main()
