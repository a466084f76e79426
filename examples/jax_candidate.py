# SPDX-License-Identifier: Apache-2.0
"""A JAX implementation with fp32 logits.

    ./fljsd fuzz --candidate "exec:python3 examples/jax_candidate.py"
"""
import jax
import jax.numpy as jnp
import numpy as np

import fljsd


def log_softmax(activations, weight, bias, temperature):
    logits = jnp.matmul(activations, weight.T, precision="highest", preferred_element_type=jnp.float32)
    if bias is not None:
        logits = logits + bias.astype(jnp.float32)
    return jax.nn.log_softmax(logits / temperature, axis=-1)


def kl(log_a, log_b):
    gone = log_a == -jnp.inf  # 0 log 0 = 0; masked before anything is computed, so that no NaN enters the gradient
    log_a, log_b = jnp.where(gone, 0, log_a), jnp.where(gone, 0, log_b)
    terms = jnp.exp(log_a) * (log_a - log_b)
    return jnp.where(log_b == -jnp.inf, jnp.inf, terms).sum(axis=-1)  # even where exp underflows: 0 times inf is NaN


def jsd(log_p, log_q, beta):
    if beta == 0:
        return kl(log_p, log_q)
    if beta == 1:
        return kl(log_q, log_p)
    # logaddexp(-inf, -inf) has a NaN gradient; exp(-1e30) is as much 0 as exp(-inf).
    log_m = jnp.logaddexp(jnp.maximum(log_p, -1e30) + np.log(beta), jnp.maximum(log_q, -1e30) + np.log1p(-beta))
    return beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)


def candidate(case):
    t = case.jax()
    v = t.valid_vocab

    def loss(student_input, student_weight, student_bias):
        def head(activations, weight, bias):
            return log_softmax(activations, weight[:v], None if bias is None else bias[:v], t.temperature)

        log_p = head(t.teacher_input, t.teacher_weight, t.teacher_bias)
        token_loss = jsd(log_p, head(student_input, student_weight, student_bias), t.beta)
        return token_loss.sum() / t.divisor, token_loss

    return t.answer(loss)


if __name__ == "__main__":
    fljsd.serve(candidate, lacks=["f64", "labels"])
