# SPDX-License-Identifier: Apache-2.0
"""Solutions of notebook 4."""
import math

import fljsd
import lab
import numpy as np

from . import exercise, near, same


@exercise("4.1", near("4.1"), (math.exp(-16), 33.0), "L is 32.")
def aliasing():
    return 33 * math.exp(-16)


@exercise("4.2", same("4.2"), (12, 25, 0), "Rows with weights 'minimax'; compare the column divergence with 1e-6.")
def smallest():
    return min(row["last_frequency"] for row in lab.data("measured/one_pass_bounds.csv")
               if row["weights"] == "minimax" and row["beta"] == 0.5 and row["divergence"] <= 1e-6)


class Once:
    """A list of pieces that can be read once."""

    def __init__(self, pieces):
        self.pieces = iter(pieces)

    def __iter__(self):
        return self.pieces


def agrees_with_the_program(function):
    rng = np.random.default_rng(9)
    one = np.ones((1, 1))
    for trial in range(3):
        x, y = rng.normal(size=60) * 3 + 1000, rng.normal(size=60) * 3 - 300
        true = fljsd.truth(one, x[:, None], one, y[:, None], beta=0, grad=False).loss
        got = float(function(Once([(x[:7], y[:7]), (x[7:41], y[7:41]), (x[41:], y[41:])])))
        # Offsets of 1300 nats are in the sums: 2^-53 * 1300 for each of about 60 terms, and some more, is below 1e-10.
        if not abs(got - true) <= 1e-10 * max(1, true):
            return False
    return True


@exercise("4.3", agrees_with_the_program, (lambda pieces: 0.0, lambda pieces: sum(x.sum() for x, _ in pieces)),
          "KL(p||q) = sum p (y - x) + lse(x) - lse(y). When a maximum rises, multiply the sums over it.")
def running_sums():
    def one_pass_kl(pieces):
        mx = my = -math.inf
        sx = sy = t = 0.0
        for x, y in pieces:
            new_x, new_y = max(mx, x.max()), max(my, y.max())
            sx = sx * math.exp(mx - new_x) + np.exp(x - new_x).sum()
            weights = np.exp(y - new_y)
            sy, t = (old * math.exp(my - new_y) + new for old, new in
                     ((sy, weights.sum()), (t, (weights * (y - x)).sum())))
            mx, my = new_x, new_y
        return t / sy + (mx + math.log(sx)) - (my + math.log(sy))

    return one_pass_kl
