# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # 6. Judge your own kernel
#
# *Afterwards you can* put an implementation before the judge, read a conviction on a minimal case, mend the fault, and
# say what a clean bill means and what it does not.
#
# You need an implementation. Here it is forty lines of NumPy; yours may be PyTorch, Triton, JAX, CUDA or C++
# ([docs/verify_your_kernel.md](../docs/verify_your_kernel.md) has ten lines for each).

# %%
import re

from lab import *

# %% [markdown]
# ## The implementation
#
# Losses and gradients of one problem, in fp32, a chunk of tokens at a time so that the logits stay small. It reads well,
# and it has a fault. Try to find it before the judge does.

# %%
def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

def row_jsd(log_p, log_q, beta):
    """Losses [tokens] and their gradients with respect to the student's logits [tokens, vocab], for 0 < beta < 1."""
    p, q = np.exp(log_p), np.exp(log_q)
    log_m = np.logaddexp(log_p + np.log(beta), log_q + np.log1p(-beta)).astype(np.float32)
    kl_p = (p * (log_p - log_m)).sum(axis=1)
    kl_q = (q * (log_q - log_m)).sum(axis=1, keepdims=True)
    return beta * kl_p + (1 - beta) * kl_q[:, 0], (1 - beta) * q * (log_q - log_m - kl_q)

def kernel(case, chunk=4):
    x, w, t, u = (getattr(case, name).astype(np.float32)
                  for name in ("student_input", "student_weight", "teacher_input", "teacher_weight"))
    losses, input_grad, weight_grad = [], np.zeros_like(x), np.zeros_like(w)
    for first in range(0, case.tokens, chunk):
        rows = slice(first, first + chunk)
        log_q = log_softmax(x[rows] @ w.T / np.float32(case.temperature))
        log_p = log_softmax(t[rows] @ u.T / np.float32(case.temperature))
        loss, slope = row_jsd(log_p, log_q, case.beta)
        slope = slope.astype(np.float32) / np.float32(case.temperature * case.tokens)
        input_grad[rows] = slope @ w
        weight_grad += slope.T @ x[rows]
        losses.append(loss.mean())
    return {"loss": sum(losses) / max(len(losses), 1), "student_input_grad": input_grad, "student_weight_grad": weight_grad}

# %% [markdown]
# ## A test that passes
#
# The test that one would write: a batch of usual size, a reference, a tolerance.

# %%
case = fljsd.generate("kaiming", tokens=64, hidden=32, vocab=200, seed=1)
answer, truth = kernel(case), fljsd.truth(case)
print("loss close to the reference:", bool(np.isclose(answer["loss"], truth.loss, rtol=1e-5)))
print("gradients close:            ", bool(np.allclose(answer["student_input_grad"], truth.student_input_grad, atol=1e-6)))

# %% [markdown]
# ## Before the judge
#
# `fljsd.judge` runs the campaign of `./fljsd fuzz` against a function. It draws small cases from sixteen input families at
# awkward sizes, compares with the reference within error budgets, and checks properties that need no reference. We
# declare what the kernel does not do, so that it is not asked for it.

# %%
def show(findings):
    for finding in findings:
        said = re.sub(r" \(0x[^)]*\)", "", finding.text)  # without the bits of each number
        print(f"\n{finding.property} of {finding.quantity} ({finding.manner})\n  {said}\n  recipe {finding.recipe}")

lacks = ["token_loss", "beta_endpoints", "labels", "bias", "valid_vocab", "reduction_sum", "reduction_none"]
verdict = fljsd.judge(kernel, cases=600, seed=1, lacks=lacks)
print("passed:", verdict.passed)
show(verdict.findings)

# %% [markdown]
# Convicted. The first failing case was shrunk for as long as it still failed. A *recipe* is a whole case in one line, the
# same on every machine. Look at how little is left of it:

# %%
finding = verdict.findings[0]
small = finding.case()
print(small)
print("got  ", kernel(small)["loss"])
print("truth", fljsd.truth(small).loss)
value = finding.details["value"]
print("allowed to be off by", f"{fljsd.program.number(value['allowed']):.3g}")

# %% [markdown]
# Hidden size 1 and two entries: so neither is the matter. But *five* tokens, no fewer, with a chunk of four: the last
# chunk is shorter than the others, and the mean of the chunks' means is not the mean. 64 tokens hid it, being a
# multiple of four. The [zoo](../docs/zoo.md) keeps this fault as `mean-of-chunk-means`.
#
# ## Mend it
#
# Sum the losses, divide once. While we are at it, biases are added to the logits, and the student's gets a gradient.

# %%
def mended(case, chunk=4):
    x, w, t, u = (getattr(case, name).astype(np.float32)
                  for name in ("student_input", "student_weight", "teacher_input", "teacher_weight"))
    b, c = (np.float32(0) if bias is None else bias.astype(np.float32) for bias in (case.student_bias, case.teacher_bias))
    total, input_grad, weight_grad = np.float32(0), np.zeros_like(x), np.zeros_like(w)
    bias_grad = np.zeros(len(w), np.float32)
    for first in range(0, case.tokens, chunk):
        rows = slice(first, first + chunk)
        log_q = log_softmax((x[rows] @ w.T + b) / np.float32(case.temperature))
        log_p = log_softmax((t[rows] @ u.T + c) / np.float32(case.temperature))
        loss, slope = row_jsd(log_p, log_q, case.beta)
        slope = slope.astype(np.float32) / np.float32(case.temperature * case.tokens)
        input_grad[rows] = slope @ w
        weight_grad += slope.T @ x[rows]
        bias_grad += slope.sum(axis=0)
        total += loss.sum()
    answer = {"loss": total / np.float32(max(case.tokens, 1)), "student_input_grad": input_grad,
              "student_weight_grad": weight_grad}
    return answer if case.student_bias is None else dict(answer, student_bias_grad=bias_grad)

print("the recipe again:", fljsd.judge(mended, recipe=finding.recipe, properties=["accuracy"], lacks=lacks).passed)
verdict = fljsd.judge(mended, cases=800, seed=1, lacks=lacks)
print("a campaign:", verdict.passed)

# %% [markdown]
# ## Promise more
#
# That bill holds for what was declared. Biases were not asked for, because `lacks` names them. Take the word out:

# %%
lacks.remove("bias")
verdict = fljsd.judge(mended, cases=800, seed=1, lacks=lacks)
print("passed:", verdict.passed)
show(verdict.findings[:2])

# %% [markdown]
# A bias may be $-\infty$: that is how padding and forbidden tokens are removed. The entry's probability is then 0, its
# logarithm $-\infty$, and `0 * inf` is NaN. By convention the term is 0. (Asking `a > 0` in place of `log_a == -inf`
# would answer NaN by 0 as well, and be convicted for that: a row of $-\infty$ alone has no distribution.)

# %%
def terms(a, log_a, log_b):
    """a (log a - log b), where a = 0 gives 0."""
    return np.where(log_a == -np.inf, 0, a * (log_a - log_b))

def row_jsd(log_p, log_q, beta):
    p, q = np.exp(log_p), np.exp(log_q)
    log_m = np.logaddexp(log_p + np.log(beta), log_q + np.log1p(-beta)).astype(np.float32)
    kl_p = terms(p, log_p, log_m).sum(axis=1)
    student = terms(q, log_q, log_m)
    kl_q = student.sum(axis=1, keepdims=True)
    return beta * kl_p + (1 - beta) * kl_q[:, 0], (1 - beta) * (student - q * kl_q)

verdict = fljsd.judge(mended, cases=1500, seed=1, lacks=lacks)
print("passed:", verdict.passed)
show(verdict.findings)

# %% [markdown]
# ## What a clean bill says
#
# It says what was covered, and how close the errors came to their budgets:

# %%
coverage = verdict.report["coverage"]
print(f"{len(coverage['family_property'])} of 16 input families; left out for what the kernel lacks:")
print(", ".join(sorted(verdict.skipped)))

axis = figure("Errors of the clean kernel, worst of each family", "", "error / budget", figsize=(7.2, 3.8))
families = list(coverage["family_property"])
for quantity in dict.fromkeys(each.quantity for each in verdict.records):
    found = {each.family: each.ratio for each in verdict.records if each.quantity == quantity and each.ratio > 0}
    axis.semilogy([families.index(name) for name in found], list(found.values()), "o", ms=4, label=quantity)
axis.set_xticks(range(len(families)), families, rotation=60, ha="right")
axis.set_ylim(1e-6, 3)
axis.axhline(1, color=COLOURS["black"], ls=":")
axis.legend(fontsize=8, ncols=2)
plt.show()

# %% [markdown]
# It does not say that there is no fault: a search that finds nothing has found nothing. It says nothing about what `lacks`
# names, about large sizes, or about races that this machine did not show. That the judge finds faults at all is shown by
# the [zoo](../docs/zoo.md): about a hundred implementations with one fault each, all of which it convicts.
#
# From a shell the same campaign is `./fljsd fuzz --candidate 'exec:python3 my_kernel.py'`, and in pytest it is
# `assert verdict.passed, str(verdict)`.
#
# ## Exercises
#
# **6.1** How many tokens does the minimal case of the first fault have if the chunk is 16 instead of 4? Predict, then let
# `fljsd.judge(lambda case: kernel(case, chunk=16), ...)` answer.

# %%
answer = None
exercises.check("6.1", answer)

# %% [markdown]
# **6.2** A gradient of zeros passes many a test, because gradients are small. Take a kernel that returns `mended`'s loss
# and zeros for both gradients. Which quantity does the judge name in its first finding?

# %%
answer = None
exercises.check("6.2", answer)

# %% [markdown]
# **6.3** Extend `mended` to labels (`case.labels`, `case.ignore_index`): ignored tokens do not count, are never read (they
# may hold NaN), and their input gradient is 0. The check runs a campaign on your function, without biases. (Hint:
# `case.counted` and `case.divisor` do the bookkeeping.)

# %%
my_kernel = None
exercises.check("6.3", my_kernel)
