# SPDX-License-Identifier: Apache-2.0
"""Runs mpi_example on several ranks and on one, and compares the losses that they print.

    python3 verify/tools/check_mpi.py RANKS PROGRAM [--json FILE]

MPIRUN: the launcher and its options, by default mpirun. All ranks must print the same loss, and the run on one rank one
that is within BOUND of it. Exit status 0 if so, 1 if not, 2 bad usage. Plain Python.
"""
import json
import os
import re
import shlex
import subprocess
import sys

# The example's logits are exact, so losses differ by how statistics are put together: each side's sums err by 1.5e-6 of
# a token's loss, or of 1 if that is more (cuda/one_pass_moments.cuh). The loss is rounded to fp32 besides, 2^-24 of it.
BOUND = 3e-6 + 2.0**-23
LINE = re.compile(r"^rank (\d+) of (\d+): entries \d+ to \d+, loss (\S+)$", re.M)


def losses(ranks, program):
    """What every rank printed, in rank order."""
    command = [*shlex.split(os.environ.get("MPIRUN", "mpirun")), "-n", str(ranks), program]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    print(done.stdout, end="", flush=True)
    found = {int(rank): loss for rank, of, loss in LINE.findall(done.stdout) if int(of) == ranks}
    if done.returncode != 0 or sorted(found) != list(range(ranks)):
        sys.exit(f"{shlex.join(command)}: exit status {done.returncode}, a loss of ranks {sorted(found)}.")
    return [found[rank] for rank in range(ranks)]


def main():
    arguments = sys.argv[1:]
    to = arguments[3] if len(arguments) == 4 and arguments[2] == "--json" else None
    if len(arguments) != (2 if to is None else 4) or not re.fullmatch("[1-9][0-9]*", arguments[0]):
        print("Usage: check_mpi.py RANKS PROGRAM [--json FILE], a number of ranks, 1 or more", file=sys.stderr)
        return 2
    printed = losses(int(arguments[0]), arguments[1])
    one, several = float(losses(1, arguments[1])[0]), float(printed[0])
    same = len(set(printed)) == 1
    difference = abs(several - one)
    good = same and difference <= BOUND * max(1.0, abs(one))
    print(f"{len(printed)} ranks have {'one loss' if same else 'different losses'}, {difference:.2g} from that of one rank "
          f"(at most {BOUND:.2g}): {'as it must be' if good else 'WRONG'}")
    if to is not None:
        with open(to, "w") as file:
            json.dump({"ranks": len(printed), "loss_by_rank": printed, "loss_of_one_rank": one, "same_bits": same,
                       "difference": difference, "bound": BOUND, "good": good}, file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
