# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # 2. Where bf16 loses
#
# *Afterwards you can* say which rounding step of a pipeline costs what, explain why a loss that is right to four digits
# can come with a gradient that is worse than zero, and read a bound beside an observed error.
#
# You need notebook 1 and the idea of a floating-point format. Models of published pipelines and their errors come from
# `./fljsd audit`; the long run at the published size is committed as `data/measured/cpu/audit-published.json`.

# %%
from lab import *

# %% [markdown]
# ## Numbers that bf16 does not have
#
# bf16 keeps eight significant bits. Near 1024 its neighbours are 8 apart, just below 1024 they are 4 apart:

# %%
def to_bf16(array):
    """Rounded to bf16, as float32."""
    return fljsd.formats.decode(fljsd.formats.encode(np.asarray(array, np.float32), "bf16"))

for around in (1.0, 100.0, 1000.0, 1030.0):
    grid = np.unique(to_bf16(around * np.linspace(0.98, 1.02, 20001)))
    print(f"bf16 near {around:g}:", ", ".join(f"{x:.10g}" for x in grid[len(grid) // 2 - 2 : len(grid) // 2 + 3]))

# %% [markdown]
# The published benchmark of this loss draws inputs and weights uniformly from $[0, 1)$. A logit is then a sum of 4096
# products of mean ¼, so it lies near 1024. This is one token of it, with a part of the vocabulary:

# %%
case = fljsd.generate("published", tokens=1, hidden=4096, vocab=3000, seed=0)
x = (case.student_input.astype(float) @ case.student_weight.astype(float).T)[0]  # float64 logits
y = (case.teacher_input.astype(float) @ case.teacher_weight.astype(float).T)[0]
rounded = to_bf16(x)

axis = figure("Student logits of one token, published inputs", "logit, nats", "entries of the vocabulary")
axis.hist(x, bins=100, color=COLOURS["sky"])
for value in np.unique(rounded):
    axis.axvline(value, color=COLOURS["vermilion"], lw=1)
axis.plot([], color=COLOURS["vermilion"], label="numbers that bf16 has")
axis.legend()
plt.show()
print(f"{len(np.unique(x))} different logits become {len(np.unique(rounded))} when rounded to bf16.")
print(f"Standard deviation {x.std():.3g} nats, range {np.ptp(x):.3g} nats; one step of bf16 is up to "
      f"{np.diff(np.unique(rounded)).max():.3g} nats.")

# %% [markdown]
# Softmax exponentiates differences of logits, so an error of 2 nats is a factor of 7 in a probability. Which entry has
# the largest logit is decided by rounding. And yet:
#
# ## The loss does not notice
#
# These are CPU models of where published pipelines round, at the published size (vocabulary 128256, hidden 4096, 1024
# tokens, of which a sample is judged), against float64. Relative errors; an answer of *zeros* scores 1.

# %%
report = data("measured/cpu/audit-published.json")
deep = report["in_depth"][0]
columns = ["loss_relative", "student_input_grad_relative_l2", "student_weight_grad_relative_l2"]
show_table(["candidate", "loss", "input gradient", "weight gradient"],
           [[each["name"], *(each["errors"][key] for key in columns)] for each in deep["candidates"]
            if each["name"] != "float64"])
print(f"\nThe true loss is {deep['true_loss']:.6f}; ln 2 is {np.log(2):.6f}.")

# %% [markdown]
# The loss is *saturated*: with logits spread over tens of nats, two independent models hardly ever agree on a token, and
# any two such rows, right or wrong, have a loss near $\ln 2$. A test that compares the scalar loss on these inputs
# passes whatever one does to the logits. The gradients, meanwhile, are about as far off as an answer of zeros, or much
# further.
#
# *In practice:* judge gradients, on inputs on which they are not tiny, and put beside each error what zeros would score.
# `./fljsd check` prints that column.
#
# ## Which step costs what
#
# Take the pipeline apart: everything in float64, then one rounding step after the other switched on. Each bar is the
# distance between the gradients with and without that step.

# %%
wanted = ["torch-eager-bf16", "liger", "fp32-logits-softplus"]
steps = {each["candidate"]: each["steps"] for each in deep["attribution"]}
names = [step["step"] for step in steps[wanted[0]]]

axis = figure("What each rounding step adds to the student-input gradient",
              "relative L2 distance", "", figsize=(7.2, 4.2))
for index, candidate in enumerate(wanted):
    added = {step["step"]: step["added"]["student_input_grad_relative_l2"] for step in steps[candidate]}
    axis.barh(np.arange(len(names)) + 0.27 * (index - 1), [added.get(name) or np.nan for name in names], height=0.25,
              label=candidate)
axis.set(xscale="log", yticks=range(len(names)), yticklabels=names, xlim=(1e-8, 1e6))
axis.invert_yaxis()
axis.axvline(1, color=COLOURS["black"], ls=":")
axis.text(1.15, 0.2, "zeros", fontsize=9)
axis.legend(loc="lower right", fontsize=9)
plt.show()

show_table(["step", "what " + wanted[0] + " does", "adds"],
           [[s["step"], s["does"], s["added"]["student_input_grad_relative_l2"]]
            for s in sorted(steps[wanted[0]], key=lambda s: -s["added"]["student_input_grad_relative_l2"])[:3]])

# %% [markdown]
# Two lessons. *Rounding the logits* to bf16 costs about as much as the gradient itself, in every pipeline that does it.
# *Rounding the log-probabilities* as well, as automatic differentiation in bf16 does, is far worse: a log-probability
# near −20 is then off by 0.06, and the gradient is a small difference of terms that no longer cancel. With fp32 logits and
# a formula that does not cancel (`fp32-logits-softplus`), what is left is what storing gradients in bf16 costs.
#
# The same at a size that takes seconds, so that you can change it (`./fljsd audit --help`):

# %%
small = audit("--family", "published", "--tokens", 8, "--hidden", 1024, "--vocab", 4096)["in_depth"][0]
show_table(["candidate", "loss", "input gradient", "weight gradient"],
           [[each["name"], *(each["errors"][key] for key in columns)] for each in small["candidates"]
            if each["name"] in wanted])

# %% [markdown]
# ## Conditioning: how much an error of the logits matters
#
# Whatever the pipeline, its logits are off by some $\delta x$. To first order the loss moves by
# $\sum_v (\partial D/\partial x_v)\,\delta x_v$. Since the sum of $|\partial D/\partial x_v|$ is at most 0.3084 at β = ½
# (Theorem 7 of [error_analysis.md](../docs/error_analysis.md)), a loss can always be trusted to a third of the logits'
# error. A gradient cannot be trusted *relative to its own size*. Here the logits above are moved at random:

# %%
def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()

def loss_and_gradient(x, y):
    """beta = 1/2, one row, float64; the gradient is docs/math.md, section 5."""
    q, p = softmax(x), softmax(y)
    m = (p + q) / 2
    log_ratio = np.where(q > 0, np.log(q / m), 0)
    kl_q = (q * log_ratio).sum()
    return ((p * np.where(p > 0, np.log(p / m), 0)).sum() + kl_q) / 2, q * (log_ratio - kl_q) / 2

rng = np.random.default_rng(2)
loss, gradient = loss_and_gradient(x, y)
sizes = np.geomspace(1e-7, 8, 25)
moved = []
for size in sizes:
    trials = [loss_and_gradient(x + size * rng.uniform(-1, 1, x.size), y) for _ in range(10)]
    moved.append([max(abs(l - loss) / loss for l, _ in trials),
                  np.median([np.linalg.norm(g - gradient) for _, g in trials]) / np.linalg.norm(gradient)])
moved = np.array(moved)

axis = figure("One token of the published inputs: answers when logits move", "logits moved by up to, nats",
              "relative change")
axis.loglog(sizes, moved[:, 1], label="gradient of the logits")
axis.loglog(sizes, moved[:, 0], label="loss")
half = {"fp32": 2.0**-15, "bf16": 2.0}  # half the distance of neighbours just below 1024
for name, value in half.items():
    axis.axvline(value, color=COLOURS["grey"], ls="--")
    axis.text(value * 1.15, 1e-9, f"storing in {name}", rotation=90, fontsize=8)
axis.axhline(1, color=COLOURS["black"], ls=":")
axis.legend(loc="upper left")
plt.show()
b = np.linspace(1e-6, 1, 100000)
print(f"The sum of |dD/dx| here: {abs(gradient).sum():.2g}; the most that is possible: {(b * (1 - b) * np.log1p(1 / b)).max():.4f}.")

# %% [markdown]
# ## Bounds, beside what is observed
#
# A *worst-case* bound assumes that all roundings conspire: $n$ additions cost $\gamma_n = nu/(1-nu)$ with $u$ the unit
# roundoff. Roundings to nearest behave more like independent coin tosses, whose sum grows like $\sqrt n$; a *statistical*
# bound says so and states how often it may fail. Sequential sums in fp32:

# %%
u, lam = 2.0**-24, 5.0
lengths = np.unique(np.geomspace(10, 200000, 25).astype(int))
observed = np.zeros(len(lengths))
partial = np.zeros(len(lengths))
for _ in range(20):
    terms = rng.uniform(0, 1, lengths[-1]).astype(np.float32)
    exact, computed = np.cumsum(terms.astype(float)), np.cumsum(terms, dtype=np.float32)
    error = abs(computed - exact) / exact
    observed = np.maximum(observed, error[lengths - 1])
    partial = np.maximum(partial, np.sqrt(np.cumsum(exact**2))[lengths - 1] / exact[lengths - 1])

axis = figure("Sums of n uniform numbers in fp32, worst of 20", "n", "relative error")
axis.loglog(lengths, lengths * u, "--", label="worst case, $\\gamma_n$")
axis.loglog(lengths, lam * u * partial, "-.", label="statistical, λ = 5 (fails once in 270 000)")
axis.loglog(lengths, observed, label="observed")
axis.legend()
plt.show()

# %% [markdown]
# The statistical line is Theorem 2 of the error analysis. It rests on an assumption about rounding which is false where
# data conspire, and the page says where. For whole pipelines all three figures are in
# `data/measured/cpu/error_bounds.csv`, on every input family; shown are those whose bound says anything, that is, lies
# below what zeros score. The budget by which an implementation is judged is the statistical one.

# %%
rows = [row for row in data("measured/cpu/error_bounds.csv")
        if row["model"] == "fp32-logits" and row["quantity"] == "student_input_grad" and row["measure"] == "relative L2"
        and isinstance(row["observed"], float) and row["observed"] > 0 and row["worst_case"] < 1]
axis = figure("Input gradient of fp32-logits: observed and bounds", "", "relative L2", figsize=(7.2, 3.8))
for key, mark in (("worst_case", "v"), ("statistical", "_"), ("observed", "o")):
    axis.semilogy([row["family"] for row in rows], [row[key] for row in rows], mark, ms=8, label=key.replace("_", " "))
axis.axhline(1, color=COLOURS["black"], ls=":")
axis.tick_params(axis="x", rotation=60)
axis.legend()
plt.show()

# %% [markdown]
# ## Exercises
#
# **2.1** How far apart are neighbouring bf16 numbers between 512 and 1024?

# %%
answer = None
exercises.check("2.1", answer)

# %% [markdown]
# **2.2** Which single rounding step adds most to the *weight* gradient's error of `liger` in `report`? Answer with the
# step's name.

# %%
answer = None
exercises.check("2.2", answer)

# %% [markdown]
# **2.3** Write `my_to_bf16(array)` that rounds a float32 array to bf16, to nearest, ties to even, and returns float32,
# without using the package. (Hint: bf16 is the upper half of a float32. Finite numbers are enough.)

# %%
my_to_bf16 = None
exercises.check("2.3", my_to_bf16)
