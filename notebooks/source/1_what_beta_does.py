# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # 1. What β does
#
# *Afterwards you can* say what the generalized Jensen–Shannon divergence (JSD) measures, bound it without computing it,
# choose β knowing what happens at 0 and 1, and tell which of the numbers that a loss prints are impossible.
#
# You need softmax and logarithms. Definitions are those of [docs/math.md](../docs/math.md), sections 2 and 6; true
# values come from the program of this checkout, through the Python package `fljsd`.

# %%
from lab import *

# %% [markdown]
# ## The definition
#
# A student and a teacher each give a probability to every entry of a vocabulary: $q$ and $p$. Mix them,
# $M = \beta p + (1-\beta) q$, and ask how far each is from the mixture:
#
# $$D_\beta = \beta\,\mathrm{KL}(p\,\|\,M) + (1-\beta)\,\mathrm{KL}(q\,\|\,M) \qquad (0 < \beta < 1).$$
#
# In five lines of NumPy, where $0\log 0 = 0$:

# %%
def kl(a, b):
    return np.where(a > 0, a * (np.log(a) - np.log(b)), 0).sum()

def jsd(p, q, beta):
    m = beta * p + (1 - beta) * q
    return beta * kl(p, m) + (1 - beta) * kl(q, m)

rng = np.random.default_rng(1)
def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()

x, y = rng.normal(size=20), rng.normal(size=20)  # logits of student and teacher
q, p = softmax(x), softmax(y)

# %% [markdown]
# The package answers the same question for whole problems: activations times a weight matrix give the logits. With
# hidden size 1 and an activation of 1, the weights *are* the logits, so a row of logits becomes a problem like this:

# %%
def true_loss(x, y, beta, certified=False):
    """The true loss for one token whose logits are x (student) and y (teacher)."""
    one = np.ones((1, 1))
    return fljsd.truth(one, x[:, None], one, y[:, None], beta=beta, certified=certified, grad=False)

show_table(["beta", "five lines", "fljsd"],
           [[beta, float(jsd(p, q, beta)), true_loss(x, y, beta).loss] for beta in (0.1, 0.5, 0.9)])
print(true_loss(x, y, 0.5, certified=True))

# %% [markdown]
# The last line is a *certificate*: interval arithmetic encloses the exact value between two decimals, and everything
# between them rounds to the double shown.
#
# ## β, and the jump at the ends
#
# As β goes to 0 or 1, the mixture becomes one of the two models, and $D_\beta$ goes to 0. But libraries do not return 0
# there. By a convention of the field,
#
# $$D_0 = \mathrm{KL}(p\,\|\,q), \qquad D_1 = \mathrm{KL}(q\,\|\,p).$$
#
# They are the *slopes* of $D_\beta$ at the ends, so that a loss at β = 0.001 is a thousand times smaller than at β = 0.

# %%
betas = np.concatenate([np.geomspace(1e-4, 0.1, 12), np.linspace(0.12, 0.88, 20), 1 - np.geomspace(0.1, 1e-4, 12)])
losses = [true_loss(x, y, beta).loss for beta in betas]
ends = {beta: true_loss(x, y, beta).loss for beta in (0.0, 1.0)}

axis = figure("The loss jumps at the ends", "β, the teacher's share of the mixture", "loss, nats")
axis.plot(betas, losses, label="$0 < β < 1$")
axis.plot(list(ends), list(ends.values()), "o", label="β = 0 and β = 1, by convention")
axis.plot([0, 1], [0, 0], "o", mfc="white", color=COLOURS["blue"], label="the limits there")
axis.legend()
plt.show()

show_table(["beta", "loss", "loss / beta", "KL(p||q)"],
           [[beta, true_loss(x, y, beta).loss, true_loss(x, y, beta).loss / beta, ends[0.0]]
            for beta in (1e-1, 1e-2, 1e-3, 1e-4)])

# %% [markdown]
# *In practice:* moving β from 0.01 to 0 is not a small step. It multiplies the loss and its gradient by about 100, and
# the learning rate with them. A program that clamps β to $[10^{-6}, 1-10^{-6}]$ "to be safe" returns a millionth of the
# right answer at the ends; the [zoo](../docs/zoo.md) keeps one that does (`endpoint-clamped`).
#
# ## What it measures: mutual information
#
# Toss a coin that shows *teacher* with probability β. Draw a vocabulary entry from the model that it names. How much
# does the entry tell about the coin? With $h(\beta) = -\beta\log\beta - (1-\beta)\log(1-\beta)$, the entropy of the coin,
#
# $$D_\beta = h(\beta) - \sum_v M_v\, h(\sigma_v), \qquad \sigma_v = \frac{\beta p_v}{M_v},$$
#
# where $\sigma_v$ is the probability that the teacher was drawn when the entry is $v$. Both sides, computed:

# %%
def h(t):
    t = np.asarray(t, float)
    return -np.where(t > 0, t * np.log(t), 0) - np.where(t < 1, (1 - t) * np.log1p(-t), 0)

rows = []
for beta in (0.1, 0.5, 0.9):
    m = beta * p + (1 - beta) * q
    rows.append([beta, float(h(beta) - (m * h(beta * p / m)).sum()), true_loss(x, y, beta).loss, float(h(beta))])
show_table(["beta", "mutual information", "loss", "h(beta)"], rows)

# %% [markdown]
# So $0 \le D_\beta \le h(\beta)$: an entry cannot tell more about a coin than there is to know. At β = ½ that is
# $\ln 2$, and it is reached exactly when the models never produce the same entry.
#
# *Docs:* equation (1) of [one_pass.md](../docs/one_pass.md). The whole one-pass algorithm starts from this reading.
#
# ## Bounds that hold for every pair of rows
#
# With the total variation $\mathrm{TV} = \frac12\sum_v|p_v-q_v|$,
#
# $$2\beta(1-\beta)\,\mathrm{TV}^2 \;\le\; D_\beta \;\le\; h(\beta)\,\mathrm{TV},
# \qquad D_\beta \le \beta(1-\beta)\,\bigl(\mathrm{KL}(p\|q) + \mathrm{KL}(q\|p)\bigr).$$
#
# Random rows, from nearly equal to nearly disjoint, stay between the curves:

# %%
beta, points = 0.3, []
for _ in range(400):
    size, distance = rng.integers(2, 50), 10 ** rng.uniform(-1.5, 1.2)
    a = rng.normal(size=size) * 10 ** rng.uniform(-1, 1)
    s, t = softmax(a), softmax(a + distance * rng.normal(size=size))
    points.append((0.5 * abs(s - t).sum(), jsd(t, s, beta)))
tv, d = np.array(points).T

axis = figure(f"400 random pairs of rows, β = {beta}", "total variation", "loss, nats")
grid = np.linspace(0, 1, 200)
axis.fill_between(grid, 2 * beta * (1 - beta) * grid**2, h(beta) * grid, alpha=0.15, label="allowed")
axis.plot(tv, d, ".", ms=3, color=COLOURS["vermilion"], label="observed")
axis.axhline(h(beta), ls=":", color=COLOURS["black"], label="h(β)")
axis.legend()
plt.show()
print("pairs outside the bounds:", int((~((2 * beta * (1 - beta) * tv**2 <= d + 1e-12) & (d <= h(beta) * tv + 1e-12))).sum()))

# %% [markdown]
# (The $10^{-12}$ covers the rounding of these five lines, which subtract nearly equal numbers.) The engine that judges
# implementations uses these inequalities as *properties*: a loss outside them is wrong, whatever the true value is.
# `./fljsd fuzz --list` shows all of them.
#
# ## One thing to take along about gradients
#
# $$\frac{\partial D_\beta}{\partial x_v} = (1-\beta)\,q_v\left(\log\frac{q_v}{M_v} - \mathrm{KL}(q\,\|\,M)\right).$$
#
# Two rows with nothing in common have the largest loss, and almost no gradient: $\log(q_v/M_v)$ is then the same
# constant for every entry that the student uses. That is the situation of the published benchmark inputs
# ([notebook 2](2_where_bf16_loses.ipynb)).

# %%
shared = rng.normal(size=40)
rows = []
for distance in (0, 1, 3, 10, 30, 100):
    lift = distance * (np.arange(40) < 20)
    case = fljsd.Case(np.ones((1, 1)), (shared + lift)[:, None], np.ones((1, 1)), (shared - lift)[:, None])
    truth = fljsd.truth(case)
    rows.append([distance, truth.loss, float(abs(truth.student_bias_grad).sum())])
show_table(["nats apart", "loss", "sum of |gradient|"], rows)

# %% [markdown]
# ## Exercises
#
# Replace `None` by your answer and run the cell.
#
# **1.1** The largest loss that is possible at β = 0.3, in nats.

# %%
answer = None
exercises.check("1.1", answer)

# %% [markdown]
# **1.2** At β = 0, the student gives probability 0 to an entry that the teacher uses. What is the loss? Decide, then
# look: `fljsd.truth` takes a `student_bias` of `-np.inf`.

# %%
answer = None
exercises.check("1.2", answer)

# %% [markdown]
# **1.3** Write `my_jsd(x, y, beta)` for one row of student and teacher logits that is right to nine digits for
# $0 \le \beta \le 1$ and logits of any common offset. The check compares it with the program.

# %%
my_jsd = None
exercises.check("1.3", my_jsd)
