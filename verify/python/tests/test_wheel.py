# SPDX-License-Identifier: Apache-2.0
"""What `pip install .` installs, from the build that is being tested, in a folder of its own. Building a wheel fetches
scikit-build-core from PyPI; where that cannot be, nothing is tested."""
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import fljsd

ROOT = Path(__file__).resolve().parents[3]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries=1", "--timeout=20"]


def run(*command, **environment):
    # A checkout elsewhere, and what this test itself was given, must not lend what the wheel lacks.
    ours = "FLJSD", "FLJSD_CUDA_LIBRARY", "PYTHONPATH"
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir(), env={**kept, **environment})


@unittest.skipUnless("FLJSD" in os.environ, "the environment variable FLJSD does not name the program")
class Wheel(unittest.TestCase):
    def build(self, source, folder, *options):
        done = run(*PIP, "wheel", str(source), "--no-deps", "-w", folder, *options)
        for reason in ("No module named pip", "No matching distribution found for scikit-build-core"):
            if reason in done.stderr:
                self.skipTest(f"no wheel can be built here: {reason}.")
        self.assertEqual(done.returncode, 0, done.stderr)
        wheel, = Path(folder).glob("*.whl")
        return wheel

    def test_everything(self):
        """Catches: a wheel without the program or with several copies of the library, a program that does not find it,
        a command that is not there."""
        build = Path(os.environ["FLJSD"]).resolve().parents[1]
        with tempfile.TemporaryDirectory() as folder:
            wheel = self.build(ROOT, folder, f"--config-settings=cmake.define.FLJSD_PREBUILT={build}")
            self.assertIn(f"fljsd-{fljsd.version()}-py3-none-linux", wheel.name)
            names = zipfile.ZipFile(wheel).namelist()
            self.assertEqual(len([name for name in names if "libfljsd_cuda" in name]), int((build / "cuda").is_dir()))
            self.assertFalse([name for name in names if "include/" in name or name.endswith(".a")])
            target = str(Path(folder) / "site")
            done = run(*PIP, "install", "--no-deps", "--target", target, str(wheel))
            self.assertEqual(done.returncode, 0, done.stderr)
            script = ("import fljsd; print(fljsd.find_program()); "
                      "print(fljsd.truth([[1.]], [[0.], [0.]], [[1.]], [[0.], [0.]]).loss)")
            done = run(sys.executable, "-c", script, PYTHONPATH=target)
            self.assertEqual(done.stdout.split(), [f"{target}/fljsd/installed/bin/fljsd", "0.0"], done.stderr)
            done = run(sys.executable, f"{target}/bin/fljsd", "--version", PYTHONPATH=target)
            self.assertIn(f"fljsd {fljsd.version()}", done.stdout, done.stderr)

    def test_the_package_alone(self):
        """Catches: a package for judging that needs a compiler."""
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.build(ROOT / "verify" / "python", folder).name,
                             f"fljsd-{fljsd.version()}-py3-none-any.whl")


if __name__ == "__main__":
    unittest.main()
