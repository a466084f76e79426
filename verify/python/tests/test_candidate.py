# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import numpy as np

from fljsd import Case, candidate, safetensors
from fljsd.formats import decode

PACKAGE = Path(candidate.__file__).resolve().parents[1]


class Served(unittest.TestCase):
    """A script that is served, spoken to as the engine speaks."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.case, self.result = (str(Path(self.folder.name) / name) for name in ("case", "result"))
        Case(np.ones((2, 3)), np.ones((5, 3)), np.ones((2, 3)), np.ones((5, 3)), dtype="bf16").write(self.case)
        self.process = None

    def tearDown(self):
        if self.process:
            self.process.stdin.close()
            self.assertEqual(self.process.wait(20), 0)
            self.process.stdout.close()
            self.process.stderr.close()
        self.folder.cleanup()

    def start(self, body, options=""):
        script = (f"import os, sys\nsys.path.insert(0, {str(PACKAGE)!r})\nimport numpy as np\nimport fljsd\n"
                  f"def f(case):\n{textwrap.indent(textwrap.dedent(body), '    ')}\nfljsd.serve(f{options})\n")
        self.process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def ask(self, **request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def ask_case(self):
        return self.ask(case=self.case, result=self.result, want=["loss", "token_loss"])

    def test_introduces_itself(self):
        self.start("return 0", ", lacks=['grad', 'f64'], accuracy_class='float64', deterministic=True")
        self.assertEqual(self.ask(hello=1), {"class": "float64", "deterministic": True, "lacks": ["grad", "f64"]})

    def test_a_strided_candidate_gets_tensors_as_they_lie(self):
        """Catches: padded rows that are lost on the way, so that a kernel which ignores strides passes."""
        tensors, metadata = safetensors.read(self.case)
        safetensors.write(self.case, tensors, dict(metadata, row_padding="2", misalignment="6"))
        self.start("""
            x = case.student_input
            right = x.strides == (20, 4) and x.ctypes.data % 64 == 4 and x.shape == (2, 3) and (x == 1).all()
            return {'loss': np.float32(right), 'token_loss': np.zeros(2)}
        """, ", strided=True")
        self.assertEqual(self.ask(hello=1)["strided"], True)
        self.assertEqual(self.ask_case(), {"ok": True})
        self.assertEqual(decode(safetensors.read(self.result)[0]["loss"]).tolist(), [1])

    def test_answers_cases_until_its_input_is_closed(self):
        self.start("return {'loss': np.float32(0.25), 'token_loss': case.student_input.sum(axis=1)}")
        for _ in range(3):
            self.assertEqual(self.ask_case(), {"ok": True})
            tensors, _ = safetensors.read(self.result)
            self.assertEqual((tensors["loss"].dtype, tensors["loss"].shape), ("F32", (1,)))
            self.assertEqual(decode(tensors["token_loss"]).tolist(), [3, 3])

    def test_prints_do_not_disturb_the_protocol(self):
        """Catches: a library's message on stdout that the engine takes for an answer."""
        self.start("print('hello'); os.write(1, b'from below\\n'); os.system('echo from a child'); return 0.5")
        self.assertEqual(self.ask_case(), {"ok": True})
        self.process.stdin.close()
        said = self.process.stderr.read()
        for text in ("hello", "from below", "from a child"):
            self.assertIn(text, said)

    def test_an_exception_is_an_error_for_its_case_alone(self):
        self.start("raise RuntimeError('no\\nluck')")
        for _ in range(2):
            self.assertEqual(self.ask_case(), {"error": "RuntimeError: no\nluck"})

    def test_unsupported_is_said_so(self):
        self.start("raise fljsd.Unsupported('odd sizes')")
        self.assertEqual(self.ask_case(), {"error": "unsupported: odd sizes"})

    def test_overwritten_inputs_are_an_error(self):
        """Catches: a function that destroys its inputs, which the file cannot show."""
        self.start("case.teacher_weight[0] = 0; return 0")
        self.assertIn("wrote to its input teacher_weight", self.ask_case()["error"])

    def test_a_result_of_another_kind_is_an_error(self):
        self.start("return {'los': 0}")
        self.assertIn("'los'", self.ask_case()["error"])

    def test_a_case_that_is_gone_is_an_error(self):
        self.start("return 0")
        self.assertIn("FileNotFoundError", self.ask(case=self.case + "x", result=self.result, want=["loss"])["error"])


class Declarations(unittest.TestCase):
    def test_misspelt_declarations_are_refused(self):
        """Catches: a candidate that believes to have declared something."""
        for options in (dict(lacks=["gradient"]), dict(lacks="all"), dict(accuracy_class="fp32")):
            with self.assertRaises(ValueError) as caught:
                candidate.Candidate(lambda case: 0, **options)
            self.assertIn("may name only" if "lacks" in options else "must be one of", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
