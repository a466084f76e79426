# SPDX-License-Identifier: Apache-2.0
"""What verify/tools/check_mpi.py makes of what ranks print; a script stands in for the launcher."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_mpi.py"
LAUNCHER = """import sys
ranks, losses = int(sys.argv[2]), sys.argv[3].split(",")
for rank in reversed(range(ranks)):
    if ranks == 1 or losses[rank + 1] != "none":
        print(f"rank {rank} of {ranks}: entries 0 to 9, loss {losses[0 if ranks == 1 else rank + 1]}")
"""


class CheckMpi(unittest.TestCase):
    def check(self, losses, *more):
        """losses: of the run on one rank, then of two ranks; they are what is launched."""
        with tempfile.TemporaryDirectory() as folder:
            launcher, record = Path(folder) / "launcher.py", Path(folder) / "record.json"
            launcher.write_text(LAUNCHER)
            done = subprocess.run([sys.executable, SCRIPT, "2", losses, *(more or ("--json", record))], text=True,
                                  capture_output=True, env={**os.environ, "MPIRUN": f"{sys.executable} {launcher}"})
            return done.returncode, json.loads(record.read_text()) if record.exists() else None

    def test_verdicts(self):
        """Catches: ranks with other bits, a loss that is not that of one rank, NaN, or a rank that says nothing, and all
        of it called good."""
        for losses, status in (("0.25,0.250001,0.250001", 0), ("0.25,0.250001,0.250002", 1), ("0.25,0.26,0.26", 1),
                               ("0.25,nan,nan", 1), ("nan,0.25,0.25", 1)):
            returned, record = self.check(losses)
            self.assertEqual((returned, record["good"]), (status, status == 0), losses)
        self.assertEqual(self.check("0.25,0.25,none"), (1, None))

    def test_usage(self):
        """Catches: an argument that is passed over."""
        self.assertEqual(self.check("0.25,0.25,0.25", "--jsn", "file")[0], 2)


if __name__ == "__main__":
    unittest.main()
