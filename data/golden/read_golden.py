#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads golden cases and their answers with the standard library alone, and checks a plain float64 loss against them.

    python3 read_golden.py [NAME...]        all cases without names; exit status 1 if one disagrees

To judge another implementation, take read_case() and read_answer() and leave the rest.
"""
import json
import math
import struct
import sys
from pathlib import Path


def read_case(path):
    """Tensors by name, each a shape and a flat row-major list of numbers, and the metadata strings."""
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    metadata, tensors = header.pop("__metadata__", {}), {}
    for name, tensor in header.items():
        raw = body[slice(*tensor["data_offsets"])]
        if tensor["dtype"] == "BF16":  # the upper half of a float32
            raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
        code = {"BF16": "f", "F16": "e", "F32": "f", "F64": "d", "I64": "q"}[tensor["dtype"]]
        count = len(raw) // struct.calcsize(code)
        tensors[name] = tensor["shape"], list(struct.unpack(f"<{count}{code}", raw))
    return tensors, metadata


def value(entry):
    """The double nearest to the true value; the middle of the bounds where those do not settle it."""
    if isinstance(entry, str):  # "nan", "inf" or "-inf"
        return float(entry)
    if entry["nearest"] is None:
        return (float(entry["lo"]) + float(entry["hi"])) / 2
    return float.fromhex(entry["nearest"])


def read_answer(path):
    """The answer with every value as a float; gradients are lists of rows."""
    def decode(entry):
        if isinstance(entry, list):
            return [decode(e) for e in entry]
        return value(entry) if isinstance(entry, (str, dict)) else entry

    answer = json.loads(Path(path).read_text())
    return {key: entry if key in ("case", "gradients_not_judged") else decode(entry) for key, entry in answer.items()}


def row(tensor, index):
    (_, cols), values = tensor
    return values[index * cols : (index + 1) * cols]


def log_softmax(logits):
    top = max(logits)
    if any(math.isnan(x) for x in logits) or math.isinf(top):
        return None  # no distribution
    log_sum = math.log(math.fsum(math.exp(x - top) for x in logits))
    return [(x - top) - log_sum for x in logits]


def divergence(x, y, beta):
    """The definition (docs/math.md), with 0 * log 0 = 0."""
    log_q, log_p = log_softmax(x), log_softmax(y)
    if log_q is None or log_p is None:
        return math.nan

    def kl(log_a, log_b):  # the sum of a * log(a/b)
        return math.fsum(math.exp(a) * (a - b) for a, b in zip(log_a, log_b) if a > -math.inf)

    if beta == 0:
        return kl(log_p, log_q)
    if beta == 1:
        return kl(log_q, log_p)
    mixture = [beta * math.exp(p) + (1 - beta) * math.exp(q) for p, q in zip(log_p, log_q)]
    log_m = [math.log(m) if m > 0 else -math.inf for m in mixture]
    return beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)


def token_losses(tensors, metadata):
    """The losses of all tokens, and how far rounding may have taken each from the true one."""
    beta, temperature = float(metadata["beta"]), float(metadata["temperature"])
    vocab = int(metadata.get("valid_vocab", tensors["student_weight"][0][0]))
    labels = tensors.get("labels", (None, None))[1]
    losses, allowed = [], []
    for t in range(tensors["student_input"][0][0]):
        if labels and labels[t] == int(metadata["ignore_index"]):
            losses.append(0.0)
            allowed.append(0.0)
            continue
        logits, size = {}, 0.0
        for model in ("student", "teacher"):
            bias = tensors.get(model + "_bias", (None, [0.0] * vocab))[1]
            activations = row(tensors[model + "_input"], t)
            logits[model] = []
            for v in range(vocab):
                products = [a * w for a, w in zip(activations, row(tensors[model + "_weight"], v))]
                logits[model].append((sum(products) + bias[v]) / temperature)
                magnitude = sum(map(abs, products)) + abs(bias[v])
                if math.isfinite(magnitude):
                    size = max(size, (len(products) + 2) * magnitude / temperature)
        losses.append(divergence(logits["student"], logits["teacher"], beta))
        # A logit is off by 2^-53 * size. Each model's logits move the divergence by at most that (twice that times the
        # gap between logits at the endpoints), and the formulas add a few roundings of logarithms of up to the gap.
        finite = [x for row in logits.values() for x in row if math.isfinite(x)] or [0.0]
        gap = max(finite) - min(finite)
        allowed.append(2.0**-53 * (2 * size + 16 + vocab) * (4 + 2 * min(gap, 800)))
    return losses, allowed


def agrees(got, expected, allowed):
    if math.isnan(expected) or math.isinf(expected):
        return got == expected or (math.isnan(got) and math.isnan(expected))
    return abs(got - expected) <= allowed  # false for NaN


def main():
    folder = Path(__file__).parent
    manifest = json.loads((folder / "manifest.json").read_text())
    known = {case["name"]: case for case in manifest["cases"]}
    wrong = 0
    for name in sys.argv[1:] or known:
        if name not in known:
            sys.exit(f"read_golden.py: there is no case '{name}' in the manifest.")
        tensors, metadata = read_case(folder / known[name]["case"])
        answer = read_answer(folder / known[name]["answer"])
        losses, allowed = token_losses(tensors, metadata)
        good = len(losses) == len(answer["token_loss"]) and all(map(agrees, losses, answer["token_loss"], allowed))
        if answer["loss"] is not None:
            divisor = max(1, answer["counted"]) if metadata["reduction"] == "batchmean" else 1
            loss = math.fsum(losses) / divisor if all(map(math.isfinite, losses)) else sum(losses)
            good = good and agrees(loss, answer["loss"], sum(allowed) + 2.0**-51 * abs(answer["loss"]))
        wrong += not good
        shown = answer["loss"] if answer["loss"] is not None else answer["token_loss"]
        print(f"{'agrees  ' if good else 'DIFFERS '} {name:26} {shown}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
