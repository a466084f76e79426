# SPDX-License-Identifier: Apache-2.0
"""Solutions of notebook 7."""
import lab
import numpy as np

from . import exercise, near, same


@exercise("7.1", near("7.1"), (4, 8, 0.0625), "The spacing of bf16 numbers, squared.")
def smaller_logits():
    def spacing(logit):
        return 2.0 ** (np.floor(np.log2(logit)) - 7)

    return (spacing(16) / spacing(4)) ** 2


@exercise("7.2", same("7.2"), (0, 400, -1), "Medians of both columns first, then their ratio, step by step.")
def parting():
    rows = [row for row in lab.data("measured/h200/distillation.csv") if row["implementation"] == "bf16-logits"]
    for step in sorted({row["step"] for row in rows}):
        reported, true = (np.median([row[key] for row in rows if row["step"] == step]) for key in ("reported", "true"))
        if reported > 2 * true:
            return step
    return None


@exercise("7.3", near("7.3"), (0, 1, 0.25), "The factor before the variance.")
def highest():
    beta = np.linspace(0, 1, 1001)
    return float(beta[np.argmax(beta * (1 - beta) / 2)])
