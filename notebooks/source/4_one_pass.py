# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # 4. One pass
#
# *Afterwards you can* derive the form of the loss that reads each logit once, see its two errors, choose how many
# frequencies to keep, and merge the statistics of two pieces of a vocabulary.
#
# You need notebook 1 and complex exponentials. The theory, with proofs, is [docs/one_pass.md](../docs/one_pass.md);
# equation numbers are its. The code is `reference/chernoff/`. Here everything is NumPy, in float64, and each step is
# compared with the truth.

# %%
from lab import *

rng = np.random.default_rng(4)
V, beta = 2000, 0.3
x = rng.normal(size=V) * 2 + 1000  # student logits; the offset is there to show that it does not matter
y = x + rng.normal(size=V) * 1.5 - 1300
one = np.ones((1, 1))
truth = fljsd.truth(one, x[:, None], one, y[:, None], beta=beta, grad=False).loss

def log_sum_exp(a):
    return a.max() + np.log(np.exp(a - a.max()).sum())

def h(t):
    return -t * np.log(t) - (1 - t) * np.log1p(-t)

print(f"true loss {truth:.10f}")

# %% [markdown]
# ## The problem
#
# $D = \sum_v [\beta p_v\log(p_v/M_v) + (1-\beta)q_v\log(q_v/M_v)]$ has the logarithm of a mixture, and the mixture needs
# both normalisers, $a = \log\sum e^{x_v}$ and $b = \log\sum e^{y_v}$. They are known only after all logits were seen. So
# the textbook reads the logits twice, or keeps them, and they are the largest thing around: at the published size
# one token's logits take a megabyte.
#
# ## Step 1: mutual information (equation 4)
#
# With $s_v = \log\frac{\beta p_v}{(1-\beta)q_v}$, the log-odds that entry $v$ came from the teacher,
#
# $$D = h(\beta) - \sqrt{\beta(1-\beta)}\,\sum_v \sqrt{p_v q_v}\;W(s_v), \qquad
# W(s) = 2\cosh(s/2)\;h\!\left(\tfrac{1}{1+e^{-s}}\right).$$
#
# The mixture is gone: the geometric mean $\sqrt{p_vq_v}$ has normalisers that come out as one factor,
# $e^{-(a+b)/2}$. What is still inside is $W$ at $s_v = (y_v - x_v) + (a-b) + c$, with $c = \log\frac{\beta}{1-\beta}$.

# %%
def W(s):
    s = abs(np.asarray(s, float))  # W is even; log1p(e^-s) cannot overflow
    return np.exp(-s / 2) * (s + np.log1p(np.exp(-s))) + np.exp(s / 2) * np.log1p(np.exp(-s))

a, b, c = log_sum_exp(x), log_sum_exp(y), np.log(beta / (1 - beta))
p, q = np.exp(y - b), np.exp(x - a)
s = (y - x) + (a - b) + c
D = h(beta) - np.sqrt(beta * (1 - beta)) * (np.sqrt(p * q) * W(s)).sum()
print(f"step 1: {D:.10f}, as the truth to ten digits: {abs(D - truth) < 1e-10}")

# %% [markdown]
# ## Step 2: waves (equations 7 and 8)
#
# $W$ is smooth and decays, so it is a sum of waves, and its spectrum is known in closed form:
#
# $$W(s) = \int_0^\infty \hat W(w)\cos(ws)\,\frac{dw}{\pi}, \qquad \hat W(w) = \frac{\pi}{(w^2+\frac14)\cosh\pi w}.$$
#
# A cosine of a sum splits: $e^{iws_v} = e^{iw(y_v-x_v)}\cdot e^{iw(a-b+c)}$. The second factor is the same for all
# entries. **That is the trick:** what depends on $v$ no longer contains a normaliser.

# %%
def spectrum(w):
    return np.pi / ((w**2 + 0.25) * np.cosh(np.pi * w))

_, axes = plt.subplots(1, 2, figsize=(8, 3.2), constrained_layout=True)
grid, w = np.linspace(-30, 30, 600), np.linspace(0, 6, 300)
axes[0].plot(grid, W(grid))
axes[0].set(title="W", xlabel="s, nats")
axes[1].semilogy(w, spectrum(w))
axes[1].set(title="its spectrum decays like $e^{-πw}$", xlabel="frequency w")
plt.show()

# %% [markdown]
# ## Step 3: a few frequencies (equation 11)
#
# Replace the integral by a sum over $w_k = kh$, $k = 0 \dots K$, with step $h = 2\pi/L$ and half weight at 0. Two things go
# wrong, and both can be seen. A sum of waves with step $h$ repeats after $L$: **aliasing**. And frequencies beyond $Kh$ are
# missing: **truncation**.

# %%
def rule(K, L):
    """Frequencies w_k and weights of the trapezoid rule: W(s) is about sum z_k cos(w_k s)."""
    w = np.arange(K + 1) * 2 * np.pi / L
    z = (2 / L) * spectrum(w)
    z[0] /= 2
    return w, z

def approximation(s, K, L):
    w, z = rule(K, L)
    return np.cos(np.outer(s, w)) @ z

grid = np.linspace(-30, 30, 1200)
_, axes = plt.subplots(1, 2, figsize=(8, 3.2), constrained_layout=True, sharey=True)
for axis, (K, L, what) in zip(axes, [(30, 14, "aliasing: K = 30, L = 14"), (3, 40, "truncation: K = 3, L = 40")]):
    axis.plot(grid, W(grid), label="W")
    axis.plot(grid, approximation(grid, K, L), label="sum of waves")
    axis.set(title=what, xlabel="s, nats")
axes[1].legend(loc="upper right")
plt.show()

# %% [markdown]
# Far from 0 the sum of waves is wrong, but what counts there is little: by equation (2) the error of $D$ is a mean, over
# the vocabulary, of
#
# $$g(s) = \frac{W_K(s) - W(s)}{2\cosh(s/2)},$$
#
# so its largest value bounds the error **for all rows**, whatever the vocabulary. Aliasing costs about $(L+1)e^{-L/2}$,
# truncation about $e^{-\pi w}$ at the first missing $w$ (equations 12 and 13). A longer period lowers the first and raises
# the second:

# %%
def largest_error(K, L):
    grid = np.linspace(-80, 80, 8001)
    return abs((approximation(grid, K, L) - W(grid)) / (2 * np.cosh(grid / 2))).max()

periods = np.linspace(16, 50, 60)
axis = figure("Largest error of the loss, over all rows", "period L, nats", "nats")
for K in (8, 13, 18, 25):
    axis.semilogy(periods, [largest_error(K, L) for L in periods], label=f"K = {K}")
axis.semilogy(periods, (periods + 1) * np.exp(-periods / 2), ":", color=COLOURS["black"], label="aliasing, (L+1)exp(-L/2)")
axis.legend(ncols=2, fontsize=9)
plt.show()

# %% [markdown]
# ## Choosing K
#
# The program's weights are better than the trapezoid rule's: a linear program chooses them so that the worst row is as
# good as can be, and so that they are exact where $p = q$ (section 5 there). From `data/measured/one_pass_bounds.csv`,
# certified bounds for β = ½, beside what is found above for the trapezoid rule:

# %%
bounds = [row for row in data("measured/one_pass_bounds.csv") if row["beta"] == 0.5]
axis = figure("Certified bound for every row, β = ½", "last frequency K", "nats")
for name in dict.fromkeys(row["weights"] for row in bounds):
    best = {}
    for row in bounds:
        if row["weights"] == name and row["last_frequency"] <= 25:
            best[row["last_frequency"]] = min(row["divergence"], best.get(row["last_frequency"], np.inf))
    axis.semilogy(sorted(best), [best[K] for K in sorted(best)], "o-", label=name)
axis.axhline(2.0**-24 * 8, color=COLOURS["grey"], ls="--", label="fp32 arithmetic, roughly: 8 units of roundoff")
axis.legend(fontsize=9)
plt.show()
for K, L in ((13, 31), (18, 36), (25, 40)):
    certified = next(row["divergence"] for row in bounds
                     if (row["weights"], row["last_frequency"], row["period"]) == ("trapezoid", K, L))
    print(f"trapezoid, K = {K}, L = {L}: largest error on our grid {largest_error(K, L):.2e}, certified {certified:.2e}")

# %% [markdown]
# Each frequency costs two sums for each token, and instructions for each logit. The default, K = 12 with period 32, is
# where the rule's bound falls to a few $10^{-6}$ nats; a loss is of order one, and gradients are computed with one more
# number per row that can be checked (section 9). More frequencies than fp32 sums can resolve would be wasted.
#
# ## Step 4: one pass (equation 10)
#
# What has to be kept for a token: $\sum e^{x_v}$, $\sum e^{y_v}$ and, for each frequency,
#
# $$\Phi(w_k) = \sum_v e^{(x_v+y_v)/2}\,e^{iw_k(y_v-x_v)}.$$
#
# Exponentials are taken relative to running maxima, as in any online softmax. Angles refer to a fixed number ρ per token,
# so that a rising maximum changes Φ by a real factor only.

# %%
K, L = 25, 40
w, z = rule(K, L)

def sweep(x, y, rho):
    """The state of one piece of the vocabulary."""
    mx, my = x.max(), y.max()
    phi = (np.exp((x - mx + y - my) / 2)[:, None] * np.exp(1j * np.outer(y - x - rho, w))).sum(axis=0)
    return {"mx": mx, "my": my, "sx": np.exp(x - mx).sum(), "sy": np.exp(y - my).sum(), "phi": phi, "rho": rho}

def finish(state):
    """The loss, from the state of a whole row."""
    a, b = state["mx"] + np.log(state["sx"]), state["my"] + np.log(state["sy"])
    tau = state["rho"] + (a - b) + c
    overlap = (z * (np.exp(1j * w * tau) * state["phi"]).real).sum() / np.sqrt(state["sx"] * state["sy"])
    return h(beta) - np.sqrt(beta * (1 - beta)) * overlap

state = sweep(x, y, rho=y[0] - x[0])
print(f"one pass: {finish(state):.10f}   truth: {truth:.10f}   off by less than 1.4e-7: {abs(finish(state) - truth) < 1.4e-7}")
print(f"the state has {4 + 1 + 2 * K + 1} numbers; the row has {2 * V}")

# %% [markdown]
# ## Step 5: merging
#
# Two states of the same token are rescaled to the larger maxima and added. Tiles of a vocabulary, thread blocks, or
# GPUs that share a vocabulary may be merged in any order:

# %%
def merge(s, t):
    mx, my = max(s["mx"], t["mx"]), max(s["my"], t["my"])
    total = {"mx": mx, "my": my, "sx": 0, "sy": 0, "phi": 0, "rho": s["rho"]}
    for each in (s, t):
        total["sx"] += each["sx"] * np.exp(each["mx"] - mx)
        total["sy"] += each["sy"] * np.exp(each["my"] - my)
        turn = np.exp(1j * w * (each["rho"] - s["rho"]))  # 1 where both use the same constant
        total["phi"] = total["phi"] + each["phi"] * np.exp((each["mx"] - mx + each["my"] - my) / 2) * turn
    return total

results = []
for trial in range(200):
    order = rng.permutation(V)
    cuts = np.sort(rng.choice(np.arange(1, V), 9, replace=False))
    pieces = [sweep(x[i], y[i], rho=y[i[0]] - x[i[0]]) for i in np.split(order, cuts)]
    while len(pieces) > 1:
        first, second = (pieces.pop(rng.integers(len(pieces))) for _ in range(2))
        pieces.append(merge(first, second))
    results.append(finish(pieces[0]))
print(f"200 ways to cut and merge agree to 12 digits: {np.ptp(results) < 1e-12}")

# %% [markdown]
# ## What the price is
#
# On random rows, the error of the loss stays below the largest value of $|g|$:

# %%
seen = []
for _ in range(300):
    size, scale = int(rng.integers(2, 400)), 10 ** rng.uniform(-3, 1.3)
    s_logits = rng.normal(size=size) * 3
    t_logits = s_logits + scale * rng.normal(size=size)
    la, lb = log_sum_exp(s_logits), log_sum_exp(t_logits)
    sv = (t_logits - s_logits) + (la - lb) + c
    error = np.sqrt(beta * (1 - beta)) * (np.exp((s_logits - la + t_logits - lb) / 2)
                                          * (approximation(sv, 13, 31) - W(sv))).sum()
    seen.append((scale, abs(error)))
axis = figure("Trapezoid rule, K = 13, L = 31, β = 0.3: 300 random rows", "logits differ by about, nats", "error, nats")
axis.loglog(*np.array(seen).T, ".", label="observed")
axis.axhline(largest_error(13, 31), color=COLOURS["black"], ls=":", label="bound, the largest |g|")
axis.legend()
plt.show()

# %% [markdown]
# Nearly equal rows (left) come close to it although their loss is tiny. That is why the program's weights are exact at
# $p = q$.
#
# ## Exercises
#
# **4.1** The aliasing bound $(L+1)e^{-L/2}$ for the default period, 32.

# %%
answer = None
exercises.check("4.1", answer)

# %% [markdown]
# **4.2** The smallest K whose *minimax* weights keep the loss of every row within $10^{-6}$ at β = ½, according to the
# table `bounds`.

# %%
answer = None
exercises.check("4.2", answer)

# %% [markdown]
# **4.3** The endpoint β = 0 needs no waves. Write `one_pass_kl(pieces)`: given a list of pairs of arrays (student logits,
# teacher logits), the pieces of one row, return $\mathrm{KL}(p\|q)$ and read each piece once. The check uses logits near 1000
# and −300. (Hint: keep $\sum e^{y_v-m}(y_v - x_v)$ beside the two sums.)

# %%
one_pass_kl = None
exercises.check("4.3", one_pass_kl)
