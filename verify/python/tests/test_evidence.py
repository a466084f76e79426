# SPDX-License-Identifier: Apache-2.0
"""What verify/tools/evidence_distributed.py makes of a run's logs."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "evidence_distributed.py"
RAN = "[==========] 3 tests from 2 test suites ran. (5 ms total)\n"


class Evidence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.logs = Path(folder.name)
        self.write("machine.log", "name, driver_version\nNVIDIA H200, 580.1, 1980 MHz\nNVIDIA H200, 580.1, 1980 MHz\n")
        self.write("cuda_tree", "0" * 40 + "\n")
        self.report_tests("nccl_threads_test.json", {"result": "COMPLETED"}, {"result": "SKIPPED"})
        self.write("san-nccl-memcheck.log", 2 * (RAN + "========= ERROR SUMMARY: 0 errors\n"))
        for seed, cases in ((1, 10), (2, 30)):
            self.fuzz(f"fuzz-nccl-{seed}.json", cases, seed, [])

    def write(self, name, text):
        (self.logs / name).write_text(text)

    def report_tests(self, name, *tests):
        self.write(name, json.dumps({"testsuites": [{"testsuite": tests}]}))

    def fuzz(self, name, cases, seed, findings):
        self.write(name, json.dumps({"candidate": "c", "cases": cases, "recipes": 5, "seed": seed, "findings": findings,
                                     "worst_ratio": {"loss": seed / 10}}))

    def run_script(self):
        done = subprocess.run([sys.executable, SCRIPT, self.logs], capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    def test_sums(self):
        """Catches: the counts of one rank or one search taken for those of all."""
        status, found = self.run_script()
        self.assertEqual((status, found["gpus"], found["gpu"]), (0, 2, "NVIDIA H200"))
        self.assertEqual(found["gpu_tests"], {"nccl_threads": {"passed": 1, "failed": 0, "skipped": 1}})
        self.assertEqual((found["sanitizers"]["nccl-memcheck"]["errors"], found["sanitizers"]["nccl-memcheck"]["tests"]),
                         (0, 6))
        fuzz = found["fuzz"]["nccl"]
        self.assertEqual((fuzz["cases"], fuzz["recipes"], fuzz["findings"], fuzz["seeds"]), (40, 10, 0, [1, 2]))
        self.assertEqual(fuzz["worst_error_over_budget"], {"loss": 0.2})

    def test_races_are_told_by_kernel(self):
        """Catches: a race of this library's kernels excused with those of cuBLASLt's; a tool that lost track taken for one
        that found nothing."""
        cublaslt, ours = "nvjet_sm90_x+0xb20", "_ZN5fljsd5merge+0x10"

        def races(*pairs):
            reports = "".join(f"========= Error: Race reported between Read access at {a}\n"
                              f"=========     and Write access at {b} [16 hazards]\n" for a, b in pairs)
            return f"{reports}{RAN}========= RACECHECK SUMMARY: {len(pairs)} hazards displayed ({len(pairs)} errors)\n"

        for text, errors, excused in ((races((cublaslt, cublaslt), (cublaslt, cublaslt)), 0, 2),
                                      (races((cublaslt, cublaslt), (cublaslt, ours)), 1, 1),
                                      (races((ours, ours)), 1, None),
                                      (races() + "========= Internal Sanitizer Error: lost\n", None, None)):
            self.write("san-nccl-racecheck.log", text)
            status, found = self.run_script()
            entry = found["sanitizers"]["nccl-racecheck"]
            self.assertEqual((entry["errors"], entry.get("races_of_cublaslt"), status), (errors, excused, errors != 0), text)

    def test_what_failed_is_a_failure(self):
        """Catches: an error of one rank, a rank that did not come to its end, a finding, a test that failed: passed over."""
        for name, text in (("san-nccl-racecheck.log", 2 * RAN + "RACECHECK SUMMARY: 0 hazards\nERROR SUMMARY: 3 errors\n"),
                           ("san-nccl-synccheck.log", 2 * RAN + "ERROR SUMMARY: 0 errors\n"),
                           ("loopback_test.json", json.dumps({"testsuites": [{"testsuite": [{"failures": ["x"]}]}]})),
                           ("check_process_groups.json",
                            json.dumps({"ranks": 2, "torch": "2", "checks": 1, "failed": ["x"], "largest": {}}))):
            self.write(name, text)
            self.assertEqual(self.run_script()[0], 1, name)
            (self.logs / name).unlink()
            self.assertEqual(self.run_script()[0], 0)
        self.fuzz("fuzz-loopback-8-1.json", 1, 1, ["x"])
        status, found = self.run_script()
        self.assertEqual((status, found["fuzz"]["loopback-8"]["findings"]), (1, 1))


if __name__ == "__main__":
    unittest.main()
