# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # 7. A loss curve to trust
#
# *Afterwards you can* read a distillation's loss curve knowing what of it is the student and what is rounding, predict
# where a curve from bf16 logits stops falling, and say what that does to the student.
#
# A tiny student (one linear layer and a head, 256 tokens a step) learns from its teacher through one implementation of the
# loss after the other. All get the same bf16 tensors. At each step two numbers are kept: the loss that the implementation
# *reported*, and the *true* loss of the same parameters, in float64. `verify/bench/peers/distillation.py` did it; its
# head says the rest.

# %%
from lab import *

rows = data("measured/h200/distillation.csv")
with open("../data/measured/h200/distillation.csv") as file:
    print(file.readline().lstrip("# ").strip())
names = ["float64", "fljsd", "liger", "bf16-logits", "torch"]
names = [name for name in names if any(row["implementation"] == name for row in rows)]
seeds = sorted({row["seed"] for row in rows})
steps = np.array(sorted({row["step"] for row in rows}))

def curve(name, key):
    """The median over seeds at each step."""
    table = {(row["seed"], row["step"]): row[key] for row in rows if row["implementation"] == name}
    return np.median([[table[seed, step] for step in steps] for seed in seeds], axis=0)

# %% [markdown]
# ## What is reported

# %%
axis = figure("The loss that each implementation reports", "step", "loss")
styles = dict(zip(names, ("-", "--", "-.", "-", "-")))
colours = dict(zip(["float64", "fljsd", "liger", "bf16-logits", "torch"], ("black", "sky", "green", "vermilion", "blue")))
for name in names:
    axis.semilogy(steps, curve(name, "reported"), styles[name], color=COLOURS[colours[name]], label=name, lw=2)
axis.legend()
plt.show()

# %% [markdown]
# Up to a loss of a thousandth all agree. Then the two curves with bf16 logits stop (`bf16-logits` and `torch`; the
# installed Liger-Kernel has fp32 logits on this GPU): whoever looks at them would end the training, or lower the learning
# rate. Neither would help, because the student is still learning:

# %%
axis = figure("The true loss of the same students", "step", "loss")
for name in names:
    axis.semilogy(steps, curve(name, "true"), styles[name], color=COLOURS[colours[name]], label=name, lw=2)
axis.legend()
plt.show()

# %% [markdown]
# At the end, medians over the seeds. Between seeds, and between implementations whose reported loss is the true one, the
# true losses differ by up to a tenth or so: roundings of the gradients, magnified by Adam.

# %%
last = {name: (curve(name, "reported")[-1], curve(name, "true")[-1]) for name in names}
show_table(["", "reported", "true", "reported / true", "true / that of float64"],
           [[name, reported, true, reported / true, true / last["float64"][1]] for name, (reported, true) in last.items()])

# %% [markdown]
# So two things happen. The *number* is wrong by a factor, where logits are rounded to bf16. And the *student* is worse,
# by less: gradients have errors of both signs, which many steps average, while a divergence cannot be negative, so that
# its errors add up.
#
# ## Where the floor is
#
# Give both models the same logits $x$, with rounding errors $\varepsilon_v$ in one and $\varepsilon'_v$ in the other. For
# small $\delta = \varepsilon - \varepsilon'$ the generalized divergence is, to second order,
#
# $$ D \approx \frac{\beta(1-\beta)}{2}\,\operatorname{Var}_p(\delta), $$
#
# the variance of $\delta$ under the probabilities $p$. Rounding to a spacing $u$ has the variance $u^2/12$, and two
# independent ones $u^2/6$; of that, $\operatorname{Var}_p$ keeps $1 - \sum_v p_v^2$. Logits of language models rarely lie
# around 0; here they lie around 20, as softmax does not see. Between 16 and 32 the neighbours of a bf16 number are
# $u = 1/8$ away.

# %%
rng = np.random.default_rng(0)

def to_bf16(array):
    return fljsd.Case(array, array, array, array, dtype="bf16").student_input.astype(float)

def jsd(x, y, beta=0.5):
    """Row by row, in float64."""
    p, q = (np.exp(z - z.max(1, keepdims=True)) for z in (y, x))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    m = beta * p + (1 - beta) * q
    return (beta * p * np.log(p / m) + (1 - beta) * q * np.log(q / m)).sum(1)

def floor(offset, scale=3.0, beta=0.5, tokens=256, vocab=256):
    """What rounding reports where the models are equal but for a difference far below a bf16 spacing, and the formula."""
    x = offset + scale * rng.normal(size=(tokens, vocab))
    rounded = to_bf16(x)
    # The teacher's rounding errors must be independent of the student's, as they are once logits differ a little.
    y = x + 0.3 * rng.normal(size=x.shape)
    seen = jsd(rounded, to_bf16(y) - (y - x), beta).mean()
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    spacing = 2.0 ** (np.floor(np.log2(abs(x))) - 7)
    mean = lambda z: (p * z).sum(1, keepdims=True)
    # Var_p of independent errors with variances s: E_p[s] - sum of p^2 s.
    s = spacing**2 / 6
    return seen, (beta * (1 - beta) / 2 * (mean(s)[:, 0] - (p**2 * s).sum(1))).mean()

show_table(["logits around", "rounding alone", "formula"], [[offset, *floor(offset)] for offset in (0, 5, 10, 20, 40, 80)])
measured = last["bf16-logits"][0] - last["bf16-logits"][1]
print(f"\nat the end of the run with bf16 logits, reported less true: {measured:.2g}")

# %% [markdown]
# The formula has the size of what was reported too much. Logits twice as large, a floor four times as high. A larger
# vocabulary does not help, nor do more tokens: each has its own floor, and the mean of floors is one.
#
# bf16 *log-probabilities* round once more, numbers of about the same size; that is `torch`, the usual form without a fused
# kernel.
#
# ## What helps
#
# Logits in fp32 move the spacing by $2^{-16}$ and so the floor by $2^{-32}$: it is gone. They need not be stored for that.
#
# ```python
# from fljsd.torch import fused_linear_jsd
# loss = fused_linear_jsd(student_input, student_weight, teacher_input, teacher_weight, beta=0.5)
# ```
#
# What remains, the distance of the true curves from 0 at the end, is the rounding of the *parameters* to bf16, which all
# implementations were given. [docs/pytorch.md](../docs/pytorch.md) is the guide.
#
# ## Exercises
#
# **7.1** By what factor does the floor fall, all else equal, when logits lie between 4 and 8 instead of 16 and 32?

# %%
answer = None
exercises.check("7.1", answer)

# %% [markdown]
# **7.2** At which recorded step is the curve that `bf16-logits` reports (the median over seeds) for the first time more
# than twice its true one?

# %%
answer = None
exercises.check("7.2", answer)

# %% [markdown]
# **7.3** Which `beta` between 0 and 1 has the highest floor?

# %%
answer = None
exercises.check("7.3", answer)
