# SPDX-License-Identifier: Apache-2.0
"""Checks the answers to the notebooks' exercises. Each right answer is computed, from the program or from data/.

    exercises.check("1.1", answer)       says whether the answer is right, and gives a hint where it is not
    python3 -m exercises                 (in notebooks/) checks the checks: they accept the solutions, refuse wrong ones

Solutions are in notebook_1.py to notebook_7.py of this folder. Reading them first spoils the fun.
"""
import importlib
import math
from dataclasses import dataclass
from typing import Callable


@dataclass
class Exercise:
    right: Callable  # the answer -> whether it is right
    solve: Callable  # () -> a right answer
    wrong: tuple  # answers that must be refused
    hint: str


EXERCISES: dict[str, Exercise] = {}


def find(name) -> Exercise:
    importlib.import_module(f".notebook_{name.split('.')[0]}", __name__)
    return EXERCISES[name]


def check(name, answer):
    """Prints whether `answer` answers exercise `name`."""
    if answer is None or answer is Ellipsis:
        print(f"{name}: not answered yet.")
        return
    exercise = find(name)
    try:
        right = exercise.right(answer)
    except Exception as error:  # the reader's function may do anything
        print(f"{name}: your answer raised {type(error).__name__}: {error}")
        return
    print(f"{name}: right." if right else f"{name}: not yet. {exercise.hint}")


def exercise(name, right, wrong, hint):
    """Decorates the function that solves exercise `name`."""
    def register(solve):
        EXERCISES[name] = Exercise(right, solve, wrong, hint)
        return solve
    return register


def near(name, relative=0.01):
    """Accepts numbers within a relative distance of the solution."""
    return lambda answer: math.isclose(float(answer), EXERCISES[name].solve(), rel_tol=relative)


def same(name):
    return lambda answer: answer == EXERCISES[name].solve()
