# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # 3. From unfused to fused
#
# *Afterwards you can* count the operations and bytes of each stage, predict its time and memory before it runs, and read
# a measured ladder without being misled by clocks.
#
# You need an idea of what a matrix product costs. Stages are described in [docs/kernels.md](../docs/kernels.md).
# Measured numbers are read from `data/measured/h200/`; this notebook picks up every stage that is in the record, so
# build it again (`python3 notebooks/build.py 3_from_unfused_to_fused`) after a new measurement.

# %%
from lab import *

record = data("measured/h200/benchmark.json")
rows = record["rows"]
T, V, H = 1024, record["vocab"], record["hidden"]
stages = list(dict.fromkeys(row["variant"] for row in rows))  # in the order of the record
colour = dict(zip(stages, ["black", "blue", "sky", "green", "vermilion", "purple", "orange", "grey"] * 2))
print(f"{source(record)}, driver {record['driver']}, {record['system']}")
print(f"vocab {V}, hidden {H}, bf16, beta {record['beta']}; stages: {', '.join(stages)}")

def find(stage, tokens, which, inputs="uniform"):
    """The row of the record, or None."""
    return next((row for row in rows if (row["variant"], row["tokens"], row["pass"], row["inputs"])
                 == (stage, tokens, which, inputs)), None)

# %% [markdown]
# ## Count first
#
# Student and teacher logits are two products of a [tokens, hidden] by a [vocab, hidden] matrix: $2TVH$ operations each,
# counting a multiply and an add as two. With gradients come two more: input and weight. The *least* traffic is to read
# both weights once. A stage that keeps all logits writes and reads them too.

# %%
def operations(tokens, which):
    return {"forward": 4, "full": 8}[which] * tokens * V * H

weights = 2 * V * H * 2  # two weights, two bytes an element
activations = 2 * T * H * 2
logits = 2 * T * V * 4  # both models, fp32
datasheet = {"bf16 operations/s": 989e12, "bytes/s": 4.8e12}  # H200 SXM, dense
show_table(["at 1024 tokens, forward", "amount", "ms at the datasheet's rate"], [
    ["operations", f"{operations(T, 'forward') / 1e12:.3g} T", operations(T, "forward") / datasheet["bf16 operations/s"] * 1e3],
    ["weights, read once", f"{weights / 1e9:.3g} GB", weights / datasheet["bytes/s"] * 1e3],
    ["activations, read once", f"{activations / 1e9:.3g} GB", activations / datasheet["bytes/s"] * 1e3],
    ["fp32 logits, written", f"{logits / 1e9:.3g} GB", logits / datasheet["bytes/s"] * 1e3],
    ["fp32 logits, read once", f"{logits / 1e9:.3g} GB", logits / datasheet["bytes/s"] * 1e3]])

# %% [markdown]
# Arithmetic takes the most time. A floor that counts bytes alone is therefore no floor worth chasing
# ([notebook 5](5_the_published_numbers.ipynb)), and fusing pays by what it *removes beside* the products.
#
# ## The roof, measured
#
# A GPU that multiplies at full power does not keep its highest clock. The ceiling to measure against is what the plain
# products (stage `gemm`, cuBLASLt, the fastest of its algorithms) reach in the same run. The slanted roof is the
# memory's rate, computed by the tool from bus width and memory clock; it was not measured with a kernel of its own.

# %%
measured_peak = max(operations(row["tokens"], row["pass"]) / row["median_ms"] * 1e3
                    for row in rows if row["variant"] == "gemm" and row["inputs"] == "uniform")
bandwidth = record["memory_bandwidth"]
axis = figure(f"Roofline, forward, {source(record)}", "operations per byte of compulsory traffic", "TFLOP/s")
intensity = np.geomspace(20, 2e4, 200)
axis.loglog(intensity, np.minimum(datasheet["bf16 operations/s"], intensity * bandwidth) / 1e12, "--",
            color=COLOURS["grey"], label="datasheet")
axis.loglog(intensity, np.minimum(measured_peak, intensity * bandwidth) / 1e12, color=COLOURS["black"],
            label="plain products, measured")
for stage in stages:
    found = [row for tokens in (1024, 2048, 4096, 8192) if (row := find(stage, tokens, "forward"))]
    axis.loglog([operations(row["tokens"], "forward") / (weights + 2 * row["tokens"] * H * 2) for row in found],
                [operations(row["tokens"], "forward") / row["median_ms"] / 1e9 for row in found], "o", ms=5,
                color=COLOURS[colour[stage]], label=stage)
axis.set(ylim=(20, 1500))
axis.legend(fontsize=8, loc="lower right")
plt.show()
ridge = datasheet["bf16 operations/s"] / datasheet["bytes/s"]
print(f"The roofs meet at {ridge:.0f} operations a byte, that is about {ridge:.0f} tokens: reading a weight of 2 bytes")
print("serves 2 operations for each token.")
print(f"Measured peak of the plain products: {measured_peak / 1e12:.0f} TFLOP/s, "
      f"{measured_peak / datasheet['bf16 operations/s']:.0%} of the datasheet.")

# %% [markdown]
# ## Memory by stage
#
# The workspace that a stage needs beside inputs and outputs, forward. What grows with the tokens holds logits:

# %%
axis = figure(f"Workspace, forward, {source(record)}", "tokens", "MB", figsize=(7.2, 3.8))
for stage in stages:
    found = [row for tokens in (1024, 2048, 4096, 8192) if (row := find(stage, tokens, "forward"))]
    axis.loglog([row["tokens"] for row in found], [row["workspace_bytes"] / 1e6 for row in found], "o-",
                color=COLOURS[colour[stage]], label=stage)
tokens = np.array([1024, 2048, 4096, 8192])
axis.loglog(tokens, 2 * tokens * V * 4 / 1e6, ":", color=COLOURS["grey"], label="both models' fp32 logits, counted")
axis.set_xticks(tokens, tokens)
axis.minorticks_off()
axis.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## The ladder
#
# Each stage's time divided by that of the plain products of the same run: two products forward, four with gradients.
# Stages took turns over the same tensors, so a clock that falls falls for all. Bars show the 10th to 90th percentile.

# %%
def ladder(which, inputs="uniform"):
    axis = figure(f"{which}, {inputs} inputs, {source(record)}", "", "time / plain products", figsize=(7.2, 3.6))
    counts = sorted({row["tokens"] for row in rows})
    for index, stage in enumerate(stages[1:]):
        found = [row for tokens in counts if (row := find(stage, tokens, which, inputs))]
        if not found:
            continue
        plain = [row["median_ms"] / row["median_ratio"] for row in found]
        middle = np.array([row["median_ratio"] for row in found])
        spread = [middle - [row["p10_ms"] / p for row, p in zip(found, plain)],
                  [row["p90_ms"] / p for row, p in zip(found, plain)] - middle]
        where = [counts.index(row["tokens"]) + 0.1 * (index - len(stages) / 2 + 1) for row in found]
        axis.errorbar(where, middle, np.maximum(spread, 0), fmt="o", ms=5, capsize=2, color=COLOURS[colour[stage]],
                      label=stage)
    axis.axhline(1, color=COLOURS["black"], ls=":")
    axis.set_xticks(range(len(counts)), [f"{n} tokens" for n in counts])
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, 0.95), high + 0.25 * (high - low))  # room for the legend
    axis.legend(fontsize=8, ncols=3, loc="upper left")
    plt.show()

ladder("forward")
ladder("full")

# %%
header = ["stage", "tokens", "ms", "/ 2 products", "workspace MB", "full, ms", "/ 4 products", "/ 6 products"]
table = []
for tokens in (1024, 8192):
    for stage in stages:
        forward, full = find(stage, tokens, "forward"), find(stage, tokens, "full")
        table.append([stage, tokens, *((forward["median_ms"], forward["median_ratio"], forward["workspace_bytes"] / 1e6)
                                       if forward else [None] * 3),
                      *((full["median_ms"], full["median_ratio"], full["median_ratio_g6"]) if full else [None] * 3)])
show_table(header, table)

# %% [markdown]
# How to read it. `unfused` writes fp32 logits and reads them in a row kernel. `unfused-bf16-logits` halves those bytes
# and saves a few percent of the time; [notebook 2](2_where_bf16_loses.ipynb) says what it costs. `chunked-tokens` does
# the same in bounded memory. `chunked-vocab` keeps no logits ([notebook 4](4_one_pass.ipynb)); with gradients it has to
# compute many of them twice, which is why its fair yardstick there is six products. A *fused* stage, where the record
# has one, does the row work while the tensor cores multiply, and its ladder step says how much of it was hidden.
#
# Errors against float64 truth, where they were measured:

# %%
keys = ["loss_error", "largest_token_error", "input_grad_error", "weight_grad_error"]
show_table(["stage", "pass", "loss, rel.", "worst token, nats", "input gradient", "weight gradient"],
           [[row["variant"], row["pass"], *(row[key] for key in keys)] for row in rows
            if row["inputs"] == "uniform" and row["tokens"] == 1024 and row["loss_error"] is not None])

# %% [markdown]
# ## What one profile says
#
# A profiler counts what a kernel did. `experiments/profile.csv` is one such count, of an earlier tree of the stages that
# its first line names. `nvjet_*` are the library's products, `row_losses` is the row kernel of `unfused`, `accumulate`
# the statistics of `chunked-vocab`. Neither of the two is bound by bytes or by instructions: they move their bytes at a
# fraction of the memory's rate, and issue two to three of the four instructions a cycle that a multiprocessor can. They
# wait, and waiting is what a fused kernel can hide behind the products.

# %%
profile = {}
for launch in data("measured/h200/experiments/profile.csv"):
    name = launch["kernel"].replace("fljsd::", "").replace("<unnamed>::", "").split("<")[0]
    profile.setdefault(name, []).append(launch)
table = []
for name, launches in profile.items():
    total = {key: sum(launch[key] for launch in launches) for key in ("duration_ns", "dram_read_bytes", "dram_write_bytes")}
    moved = total["dram_read_bytes"] + total["dram_write_bytes"]
    table.append([name, len(launches), total["duration_ns"] / 1e6, moved / 1e9, moved / total["duration_ns"],
                  float(np.mean([launch["instructions_per_cycle"] for launch in launches]))])
show_table(["kernel", "launches", "ms", "GB moved", "TB/s", "instructions/cycle"],
           [[*row[:4], row[4] / 1e3, row[5]] for row in table])

# %% [markdown]
# ## Power and clocks
#
# Why ratios and not milliseconds: at its power limit the GPU lowers the clock until it fits, and how far depends on the
# *data*: at the same power, normal inputs run at a lower clock than uniform ones.

# %%
clocks = record["clocks"]
axis = figure(f"Clock and power during the runs, {source(record)}", "mean power, W", "mean clock, MHz")
for inputs, mark in (("uniform", "o"), ("normal", "s")):
    found = [each for each in clocks if each["inputs"] == inputs]
    if found:
        axis.plot([each["mean_watts"] for each in found], [each["mean_sm_mhz"] for each in found], mark, label=f"{inputs} inputs")
axis.axhline(record["clock_hz"] / 1e6, color=COLOURS["black"], ls=":", label="highest clock")
axis.legend(loc="center right")
plt.show()
table = []
for inputs in dict.fromkeys(each["inputs"] for each in clocks):
    gemm = find("gemm", 8192, "forward", inputs)
    if gemm:
        mhz = next(each["mean_sm_mhz"] for each in clocks
                   if (each["inputs"], each["tokens"], each["pass"]) == (inputs, 8192, "forward"))
        table.append([inputs, gemm["median_ms"], mhz, gemm["median_ms"] * mhz * 1e3 / 1e6])
show_table(["inputs, 8192 tokens", "plain products, ms", "clock, MHz", "million cycles"], table)

# %% [markdown]
# The same products take nearly the same number of cycles and different times. Whoever compares two runs of different
# days, cooling or data compares clocks; whoever takes turns in one run compares kernels.
#
# ## Exercises
#
# **3.1** Above how many tokens does arithmetic take longer than reading both weights once, forward, at the H200's
# datasheet rates (989 TFLOP/s and 4.8 TB/s)? To the nearest ten.

# %%
answer = None
exercises.check("3.1", answer)

# %% [markdown]
# **3.2** Which stage needs the least workspace forward at 1024 tokens, uniform inputs, of those that compute a loss (the
# row's `loss` is not `None`; baselines such as `gemm` have none)? Answer with its name, found by a line of code.

# %%
answer = None
exercises.check("3.2", answer)

# %% [markdown]
# **3.3** How many TFLOP/s do the plain products reach forward at 8192 tokens with *normal* inputs?

# %%
answer = None
exercises.check("3.3", answer)
