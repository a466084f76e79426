# SPDX-License-Identifier: Apache-2.0
"""Checks the checks: each accepts its own solution and refuses answers that are known to be wrong."""
import sys

import lab  # noqa: F401  finds the package fljsd
from exercises import EXERCISES, find

failed = 0
for notebook in range(1, 8):
    for number in range(1, 4):
        name = f"{notebook}.{number}"
        exercise = find(name)
        if not exercise.right(exercise.solve()):
            print(f"{name} refuses its solution.")
            failed += 1
        for answer in exercise.wrong:
            try:
                accepted = exercise.right(answer)
            except Exception:
                accepted = False
            if accepted:
                print(f"{name} accepts {answer!r}, which is wrong.")
                failed += 1
print(f"{len(EXERCISES)} exercises, {failed} faults.")
sys.exit(failed != 0)
