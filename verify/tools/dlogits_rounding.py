# SPDX-License-Identifier: Apache-2.0
"""Four ways to round dlogits to bf16, and what each does to the student's input gradient. Needs NumPy.

    python3 verify/tools/dlogits_rounding.py > data/measured/cpu/dlogits_rounding.csv

Rows of 128256 logits. The rows of the weight are random with mean m and standard deviation s in every
element, so that an error delta of the dlogits g costs, relative to the gradient and in the mean over such
weights,

    sqrt((m * sum(delta))**2 + s**2 * sum(delta**2)) / (s * sqrt(sum(g**2))),

because sum(g) = 0. Rounding of the result is not in it (1.66e-3). Ways:

    plain       round to nearest
    feedback    every thread of 1024 adds what its earlier roundings took away, times a gain, to its next
                entry, as far as that stays within half a unit in the last place
    mean_row    what rounding took from the row is given back times the mean row of the weight
    residuals   what rounding took from entries of a sixteenth of the row's bound or more is given back
                (cuda/rounding_residuals.h)
"""

import sys

import numpy as np

VOCAB, THREADS = 128256, 1024


def bf16(x):
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def dlogits(x, y):
    """dD/dx at beta = 1/2 and the bound of its sum of moduli (cuda/gradient_norm.cuh)."""
    log_q = x - x.max() - np.log(np.exp(x - x.max()).sum())
    log_p = y - y.max() - np.log(np.exp(y - y.max()).sum())
    q, softplus = np.exp(log_q), np.logaddexp(0, log_p - log_q)
    kappa = (q * softplus).sum()
    kl = np.log(2) - kappa
    bound = kappa if kappa < kl else kl + np.sqrt(kl / 2)
    return 0.5 * q * (kappa - softplus), bound


def feedback(g, gain):
    """Vectors of four, as the kernels give them to threads."""
    rounds = -(-VOCAB // (4 * THREADS))
    padded = np.zeros(rounds * 4 * THREADS)
    padded[:VOCAB] = g
    steps = padded.reshape(rounds, THREADS, 4).transpose(0, 2, 1).reshape(-1, THREADS)
    carry, out = np.zeros(THREADS), np.empty_like(steps)
    for step, exact in enumerate(steps):
        most = np.abs(exact) * 2.0**-9
        out[step] = bf16(exact + np.clip(gain * carry, -most, most))
        carry += exact - out[step]
    return out.reshape(rounds, 4, THREADS).transpose(0, 2, 1).reshape(-1)[:VOCAB]


def ways(g, bound):
    rounded = bf16(g)
    delta = rounded - g
    yield "plain", delta
    yield "feedback, gain 1", feedback(g, 1) - g
    yield "feedback, gain 1/4", feedback(g, 0.25) - g
    yield "mean_row", delta - delta.sum() / VOCAB
    yield "residuals", np.where(np.abs(g) >= bound / 16, 0, delta)


def main():
    generator = np.random.default_rng(1)
    print("# SPDX-License-Identifier: Apache-2.0")
    print("# python3 verify/tools/dlogits_rounding.py > data/measured/cpu/dlogits_rounding.csv")
    print("rows,logits_spread,weight_mean_over_deviation,tokens,way,input_grad_error,dlogits_error")
    for name, spread, ratio, tokens in (
        ("published", 10.67, np.sqrt(3), 1024),  # uniform on [0, 1), hidden 4096
        ("flat, shared mean", 0.58, np.sqrt(3), 32),
        ("flat, mean 0", 0.58, 0, 32),
        ("peaked, mean 0", 10.67, 0, 64),
    ):
        squares, total = {}, 0
        for _ in range(tokens):
            g, bound = dlogits(generator.normal(0, spread, VOCAB), generator.normal(0, spread, VOCAB))
            total += (g**2).sum()
            for way, delta in ways(g, bound):
                error, own = squares.get(way, (0, 0))
                own_square = (delta**2).sum()
                squares[way] = (error + (ratio * delta.sum()) ** 2 + own_square, own + own_square)
        for way, (error, own) in squares.items():
            errors = f"{np.sqrt(error / total):.2e},{np.sqrt(own / total):.2e}"
            print(f'"{name}",{spread},{ratio:.3f},{tokens},"{way}",{errors}')
    return 0


if __name__ == "__main__":
    sys.exit(main())
