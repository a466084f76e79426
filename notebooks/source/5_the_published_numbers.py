# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # 5. The published numbers
#
# *Afterwards you can* say what a public benchmark of this loss reported and how, explain why its fused implementation
# takes 110 ms, and correct its floor.
#
# Published numbers are in `data/published/`, with their sources; measured ones in `data/measured/h200/`. `./fljsd
# reproduce` prints the comparison in full ([docs/reproducing.md](../docs/reproducing.md)).

# %%
from lab import *

published = [row for row in data("published/liger.csv") if row["kernel_name"] == "fused_linear_jsd"]
peers = data("measured/h200/peers.csv")
record = data("measured/h200/benchmark.json")
V, H = record["vocab"], record["hidden"]

def times(rows, provider, which, key="y_value_50", metric="speed"):
    found = {row["x_value"]: row[key] for row in rows if (row["kernel_provider"], row["kernel_operation_mode"],
                                                          row["metric_name"]) == (provider, which, metric)}
    return np.array(sorted(found)), np.array([found[n] for n in sorted(found)])

# %% [markdown]
# ## What was reported
#
# Vocabulary 128256, hidden 4096, bf16. `liger` is the fused kernel of Liger-Kernel, `torch` the plain PyTorch code beside it.

# %%
print(f"published: {published[0]['gpu_name']}, {published[0]['timestamp'][:10]}, Liger-Kernel {published[0]['liger_version']}")
print(f"measured:  {peers[0]['gpu_name']}, {peers[0]['timestamp'][:10]}, "
      f"Liger-Kernel {next(row['liger_version'] for row in peers if row['liger_version'])}\n")
table = []
for provider, which in (("torch", "forward"), ("liger", "forward"), ("torch", "full"), ("liger", "full")):
    tokens, was = times(published, provider, which)
    _, now = times(peers, provider, which)
    _, memory = times(published, provider, which, metric="memory") if which == "full" else (None, [None] * len(tokens))
    table += [[provider, which, int(n), float(a), float(b), m and float(m)] for n, a, b, m in zip(tokens, was, now, memory)]
show_table(["", "pass", "tokens", "published, ms (H100)", "measured, ms (H200)", "published MiB"], table)

# %%
axis = figure("Forward: published (H100), measured (H200)", "tokens", "ms", figsize=(7.2, 4.2))
for provider, name in (("liger", "vermilion"), ("torch", "blue"), ("torch-compile", "purple")):
    for rows, style, where in ((published, "o-", "published, H100"), (peers, "s--", "measured, H200")):
        tokens, ms = times(rows, provider, "forward")
        if len(tokens):
            axis.loglog(tokens, ms, style, color=COLOURS[name], label=f"{provider}, {where}")
tokens = np.array([1024, 2048, 4096, 8192])
axis.loglog(tokens, 4 * tokens * V * H / 989e12 * 1e3, ":", color=COLOURS["black"], label="arithmetic floor, 989 TFLOP/s")
axis.set_xticks(tokens, tokens)
axis.minorticks_off()
axis.legend(fontsize=8)
plt.show()

# %% [markdown]
# The fused kernel is the slowest of all, and eight times the tokens take less than twice the time. Something else than
# tokens is being paid for.
#
# ## How it was measured
#
# Three things that the table does not say. First: times of 100 ms and more rest on a *single sample*; the harness repeats
# for 100 ms, and its quantiles are then all equal. Second: Liger's forward call computes the gradients too, four products
# where PyTorch's forward row has two. Third: memory is in MiB and includes the weights.

# %%
show_table(["", "pass", "tokens", "20 %", "50 %", "80 %", "single sample"],
           [[row["kernel_provider"], row["kernel_operation_mode"], row["x_value"],
             *(float(row[f"y_value_{quantile}"]) for quantile in (20, 50, 80)),
             "yes" if row["y_value_20"] == row["y_value_50"] == row["y_value_80"] else "no"]
            for row in published if row["metric_name"] == "speed" and row["x_value"] in (1024, 8192)])

# %% [markdown]
# ## Why 110 ms
#
# Fit a straight line: a price per call, and a price per token.

# %%
fits = {}
for label, rows in (("published, H100", published), ("measured, H200", peers)):
    tokens, ms = times(rows, "liger", "forward")
    slope, fixed = np.polyfit(tokens, ms, 1)
    fits[label] = fixed, slope
show_table(["liger forward", "per call, ms", "per token, us"],
           [[label, float(fixed), float(slope * 1e3)] for label, (fixed, slope) in fits.items()])

# %% [markdown]
# Where does the price per call come from? The kernel works through the tokens in chunks whose number depends on the shape
# alone. With ceil(vocab / hidden) = 32, a chunk has the power of two at or above tokens / 32. Its source shows what each
# chunk does with matrices of the size of the weights, $VH$ elements of two bytes:
#
# | step of a chunk | passes over a matrix of VH elements |
# |---|---|
# | student and teacher logits | 2 (read both weights) |
# | gradient of the input | 1 (read the student's weight) |
# | gradient of the weight, this chunk's share | 1 (write) |
# | add it to the sum | 3 (read both, write) |

# %%
def chunks(tokens):
    size = 2 ** int(np.ceil(np.log2(np.ceil(tokens / np.ceil(V / H)))))
    return size, int(np.ceil(tokens / size))

passes, bytes_each = 2 + 1 + 1 + 3, V * H * 2
rows = []
for tokens in (1024, 2048, 4096, 8192):
    size, count = chunks(tokens)
    moved = passes * bytes_each * count
    rows.append([tokens, size, count, moved / 1e9, moved / 3.35e12 * 1e3, moved / 4.8e12 * 1e3])
show_table(["tokens", "tokens in a chunk", "chunks", "GB moved", "ms at 3.35 TB/s (H100)", "ms at 4.8 TB/s (H200)"], rows)
print(f"\nPer call, from the fits: {fits['published, H100'][0]:.0f} ms on the H100, "
      f"{fits['measured, H200'][0]:.0f} ms on the H200.")
print(f"Compulsory traffic of one call, weights once and one gradient written: {3 * bytes_each / 1e9:.3g} GB.")

# %% [markdown]
# So most of the published time is spent moving the weights and the weight gradient 32 times, at any number of tokens: the
# chunk is too small to amortise them. This count is a lower bound: launches, fp32 copies of a chunk's logits, and whatever
# keeps a kernel from the memory's full rate come on top, and were not measured apart. The cure is not a faster kernel
# but fewer chunks: `chunked-tokens` uses as many tokens at a time as its memory budget allows.

# %%
rows = []
for tokens in (1024, 2048, 4096, 8192):
    liger = dict(zip(*times(peers, "liger", "full")))[tokens]
    for row in record["rows"]:
        if (row["variant"], row["tokens"], row["pass"], row["inputs"]) == ("chunked-tokens", tokens, "full", "uniform"):
            rows.append([tokens, float(liger), row["median_ms"], float(liger / row["median_ms"])])
show_table(["tokens, with gradients, H200", "liger, ms", "chunked-tokens, ms", "ratio"], rows)

# %% [markdown]
# ## The floor that forgot the arithmetic
#
# The page also states an estimated floor. It counts the bytes of the declared tensors at the datasheet's bandwidth, and
# nothing else:

# %%
floor = next(row for row in data("published/kernelindex.csv") if "floor" in row["implementation"])
T = floor["tokens"]
tensors = 2 * (2 * T * H + 2 * V * H) + 4
arithmetic = 4 * T * V * H / 989e12
print(f"published floor at {T} tokens: {floor['value']} us")
print(f"bytes of inputs and weights / 3.35 TB/s:  {tensors / 3.35e12 * 1e6:.1f} us")
print(f"operations / 989 TFLOP/s (H100, dense):   {arithmetic * 1e6:.1f} us")
gemm = next(row for row in record["rows"] if (row["variant"], row["tokens"], row["pass"], row["inputs"])
            == ("gemm", T, "forward", "uniform"))
print(f"the two plain products, measured, H200:   {gemm['median_ms'] * 1e3:.0f} us")

# %%
axis = figure("Floors of the forward pass, H100 datasheet", "tokens", "ms")
grid = np.geomspace(32, 8192, 100)
axis.loglog(grid, 2 * (2 * grid * H + 2 * V * H) / 3.35e12 * 1e3, label="bytes only (as published)")
axis.loglog(grid, 4 * grid * V * H / 989e12 * 1e3, label="arithmetic only")
axis.plot(T, floor["value"] / 1e3, "o", color=COLOURS["black"], label="the published floor")
axis.legend()
plt.show()

# %% [markdown]
# At 1024 tokens the true floor is more than three times the published one. A ratio to a floor that cannot be reached
# sends the reader looking for bandwidth where the time is arithmetic.
#
# ## And the loss says nothing
#
# The benchmark's inputs are uniform numbers, for which the loss is saturated and bf16 logits leave nothing of the
# gradient: [notebook 2](2_where_bf16_loses.ipynb).
#
# ## Exercises
#
# **5.1** How many TFLOP/s does the published Liger forward at 1024 tokens achieve, when all *four* products that it does
# are counted?

# %%
answer = None
exercises.check("5.1", answer)

# %% [markdown]
# **5.2** What is the largest number of chunks for which the counted traffic, at 4.8 TB/s, takes less than 5 ms?

# %%
answer = None
exercises.check("5.2", answer)

# %% [markdown]
# **5.3** From how many tokens on does the published page's kind of floor fall below the arithmetic one, at the H100's
# rates? To the nearest ten.

# %%
answer = None
exercises.check("5.3", answer)
