# SPDX-License-Identifier: Apache-2.0
"""Compiles CUDA sources for sm_90a and fails if the assembler spilled registers or serialised asynchronous products.

    python3 verify/tools/check_ptxas.py NVCC SOURCE_FOLDER FILE...

A kernel whose accumulators fill the registers is quietly several times slower after either; both are only said in the
assembler's verbose output. FILE: relative to SOURCE_FOLDER. Exit status 1 if anything is found, 2 if it does not compile.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# setmaxnreg ignored; wgmma serialised, for one reason or another.
SERIOUS = re.compile(r"C7504|C7508|C7509|C751[0-8]")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
FUNCTION = re.compile(r"Compiling entry function '([^']+)'")


def findings(output):
    """Sentences about a compilation's verbose output, and how many kernels it is about."""
    found, kernel, kernels = [], "", 0
    for line in output.splitlines():
        if match := FUNCTION.search(line):
            kernel, kernels = match[1], kernels + 1
        if (match := SPILLS.search(line)) and (match[1], match[2]) != ("0", "0"):
            found.append(f"{kernel}: {match[0]}")
        if SERIOUS.search(line):
            found.append(line.strip())
    return found, kernels


def main():
    if len(sys.argv) < 4:
        sys.exit("Usage: check_ptxas.py NVCC SOURCE_FOLDER FILE...")
    nvcc, folder, files = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            command = [nvcc, "-std=c++17", "-O3", f"-I{folder}", "--generate-code=arch=compute_90a,code=sm_90a",
                       "--expt-relaxed-constexpr", "-Xptxas=-v", "-cubin", "-o", f"{scratch}/out.cubin", str(folder / file)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                print(run.stdout + run.stderr)
                sys.exit(2)
            here, kernels = findings(run.stdout + run.stderr)
            if kernels == 0:
                here = [f"{file}: no kernel was compiled"]
            print(f"{file}: {kernels} kernels, {len(here)} findings")
            found += here
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
