# SPDX-License-Identifier: Apache-2.0
"""Solutions of notebook 1."""
import math

import fljsd
import numpy as np

from . import exercise, near, same


@exercise("1.1", near("1.1", 1e-3), (math.log(2), 0.3, 1.0),
          "Models that never produce the same entry tell all there is to know about the coin.")
def largest_loss():
    beta, one = 0.3, np.ones((1, 1))
    apart = np.array([[2000.0], [0.0]])  # nats; the two models never produce the same entry
    return fljsd.truth(one, apart, one, apart[::-1].copy(), beta=beta, grad=False).loss


@exercise("1.2", same("1.2"), (0.0, math.log(2), -math.inf), "KL(p||q) has the term p log(p/0).")
def excluded_entry():
    one, two = np.ones((1, 1)), np.zeros((2, 1))
    return fljsd.truth(one, two, one, two, beta=0, student_bias=np.array([0.0, -np.inf]), grad=False).loss


def agrees_with_the_program(function):
    rng = np.random.default_rng(7)
    one = np.ones((1, 1))
    for beta in (0.0, 0.2, 0.5, 1.0):
        for offset in (0.0, 900.0):
            x, y = rng.normal(size=12) + offset, rng.normal(size=12) - offset
            true = fljsd.truth(one, x[:, None], one, y[:, None], beta=beta, grad=False).loss
            # 1e-9: a textbook formula in float64 errs by a few 2^-53 times |log q| <= 10 here, and by half a unit of
            # logits near 900 (6e-14) in each; nine digits leave room for all of that.
            if not abs(float(function(x, y, beta)) - true) <= 1e-9 * true:
                return False
    return True


@exercise("1.3", agrees_with_the_program, (lambda x, y, beta: 0.5, lambda x, y, beta: math.nan),
          "Subtract the largest logit of each row before exp, and treat beta = 0 and 1 as KL divergences.")
def five_lines():
    def log_softmax(x):
        x = x - x.max()
        return x - np.log(np.exp(x).sum())

    def jsd(x, y, beta):
        log_q, log_p = log_softmax(x), log_softmax(y)
        q, p = np.exp(log_q), np.exp(log_p)
        if beta == 0:
            return (p * (log_p - log_q)).sum()
        if beta == 1:
            return (q * (log_q - log_p)).sum()
        log_m = np.log(beta * p + (1 - beta) * q)
        return (beta * p * (log_p - log_m) + (1 - beta) * q * (log_q - log_m)).sum()

    return jsd
