# SPDX-License-Identifier: Apache-2.0
"""Solutions of notebook 2."""
import lab
import numpy as np
from fljsd import formats

from . import exercise, near, same


def reference(array):
    return formats.decode(formats.encode(np.asarray(array, np.float32), "bf16"))


@exercise("2.1", near("2.1", 1e-12), (8, 2, 1), "Eight significant bits: 512 is 2^9, and one unit is 2^(9-7).")
def spacing():
    grid = np.unique(reference(np.linspace(513, 1023, 100000)))
    return float(np.diff(grid).max())


@exercise("2.2", same("2.2"), ("dlogits", "result", "log-softmax"),
          "Look at added['student_weight_grad_relative_l2'] of its steps.")
def worst_step():
    attribution = lab.data("measured/cpu/audit-published.json")["in_depth"][0]["attribution"]
    steps = next(each["steps"] for each in attribution if each["candidate"] == "liger")
    return max(steps, key=lambda step: step["added"]["student_weight_grad_relative_l2"])["step"]


def rounds_like_the_package(function):
    rng = np.random.default_rng(3)
    values = (rng.normal(size=4000) * 10.0 ** rng.integers(-30, 30, 4000)).astype(np.float32)
    ties = (np.arange(1, 4000, dtype=np.uint32) << 16 | 0x8000).view(np.float32)  # halfway between neighbours
    values = np.concatenate([values, ties, np.float32([0, -0.0, 1, 1024])])
    return np.array_equal(np.asarray(function(values), np.float32), reference(values))


@exercise("2.3", rounds_like_the_package,
          (lambda a: a, lambda a: (a.view(np.uint32) & 0xFFFF0000).view(np.float32),
           lambda a: ((a.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)),
          "Add 0x7fff plus the lowest bit that stays, then clear the lower half.")
def upper_half():
    def to_bf16(array):
        bits = np.asarray(array, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)

    return to_bf16
