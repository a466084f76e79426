# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import os
import re
import unittest
from pathlib import Path
from unittest import mock

import fljsd

ROOT = Path(__file__).resolve().parents[3]


class Configuration(unittest.TestCase):
    def test_version_is_that_of_the_build(self):
        """Catches: a second place that says the version."""
        expected = re.search(r"project\(fljsd VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        self.assertEqual(fljsd.version(), expected)
        for path in ("pyproject.toml", "verify/python/pyproject.toml"):
            text = (ROOT / path).read_text()
            self.assertIn('dynamic = ["version"]', text)
            self.assertIsNone(re.search(r'^version = ', text, re.M), path)

    @unittest.skipUnless("FLJSD" in os.environ, "the environment variable FLJSD does not name the program")
    def test_config(self):
        """Catches: a report that fails where something is missing, instead of saying so."""
        with mock.patch.dict(os.environ, FLJSD_CUDA_LIBRARY="/no/such/library.so"):
            found = fljsd.config()
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                fljsd.show_config()
        self.assertIn(f"fljsd {fljsd.version()}", found["program_version"])
        self.assertIsNone(found["library"])
        self.assertIn("'/no/such/library.so', but that is not a file", found["library_error"])
        self.assertIn("library_error:", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
