#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws accuracy_and_speed.svg: every stage and every published implementation on the published workload.

    python3 docs/picture.py           writes it anew from data/
    python3 docs/picture.py --check   fails if the file is not what data/ gives

Plain Python. Times: data/measured/h200/benchmark.json and peers.csv, data/published/liger.csv. Errors of the stages:
measured on the GPU against float64 truth, in benchmark.json. Errors of the published implementations: those of CPU
models of where their releases round (docs/reproducing.md), data/measured/cpu/audit-published.json. A stage that enters the record enters the picture.
"""
import csv
import html
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data"
FILE = Path(__file__).resolve().parent / "accuracy_and_speed.svg"
TOKENS = 1024
# Provider: audited model, of the release that was timed. Liger-Kernel keeps fp32 logits since 0.8.2.
PUBLISHED_MODELS = {"torch": "torch-eager-bf16", "torch-compile": "torch-compile", "liger": "liger"}
MEASURED_MODELS = {**PUBLISHED_MODELS, "liger": "fp32-logits"}
PASSES = ("forward", "full")
# Okabe and Ito's colours, told apart by colour-blind readers.
STAGE_COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#000000")
PEER_COLOURS = {"torch": "#882255", "torch-compile": "#D55E00", "liger": "#999933"}


@dataclass
class Entry:
    name: str
    colour: str
    mark: str  # circle: a stage; square: measured again; hollow: published
    points: dict  # pass: (milliseconds or None, error or None)


def benchmark_rows(path):
    with open(path) as file:
        return [row for row in csv.DictReader(file) if row["kernel_name"] == "fused_linear_jsd"
                and row["metric_name"] == "speed" and int(row["x_value"]) == TOKENS]


def entries():
    """Everything that is drawn, and the times of the plain products by pass."""
    record = json.loads((DATA / "measured/h200/benchmark.json").read_text())
    error_of = {"forward": "largest_token_error", "full": "input_grad_error"}
    stages, plain = {}, {}
    for row in record["rows"]:
        if row["inputs"] != "uniform" or row["tokens"] != TOKENS:
            continue
        if row["variant"] == "gemm":
            plain[row["pass"]] = row["median_ms"]
        elif row["loss"] is not None:  # other baselines compute no loss either
            stages.setdefault(row["variant"], {})[row["pass"]] = row["median_ms"], row[error_of[row["pass"]]]
    result = [Entry(name, STAGE_COLOURS[i % len(STAGE_COLOURS)], "circle", points)
              for i, (name, points) in enumerate(stages.items())]

    audit = json.loads((DATA / "measured/cpu/audit-published.json").read_text())["in_depth"][0]
    errors = {each["name"]: (each["errors"]["token_loss_worst_absolute"],
                             each["errors"]["student_input_grad_relative_l2"]) for each in audit["candidates"]}
    for path, mark, suffix, models in (("measured/h200/peers.csv", "square", "", MEASURED_MODELS),
                                       ("published/liger.csv", "hollow", ", published", PUBLISHED_MODELS)):
        rows = benchmark_rows(DATA / path)
        for provider, model in models.items():
            points = {row["kernel_operation_mode"]: (float(row["y_value_50"]), errors[model][PASSES.index(
                row["kernel_operation_mode"])]) for row in rows if row["kernel_provider"] == provider}
            if points:
                gpu = next(row["gpu_name"] for row in rows if row["kernel_provider"] == provider)
                short = next((word for word in gpu.split() if word[0] == "H"), gpu)
                result.append(Entry(f"{provider}{suffix}, {short}" if suffix else provider, PEER_COLOURS[provider], mark,
                                    points))
    return record, audit, result, plain


class Axis:
    """A logarithmic axis in pixels."""

    def __init__(self, values, start, end):
        self.low, self.high = min(values) / 1.7, max(values) * 1.7
        self.start, self.end = start, end

    def __call__(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        """Powers of ten, and 2 and 5 times those where they are few."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        factors = (1, 2, 5) if last - first < 4 else (1,)
        values = [float(f"{factor}e{k}") for k in range(first, last + 1) for factor in factors]
        return [value for value in values if self.low <= value <= self.high]


def text(x, y, words, size=12, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{extra}>{html.escape(words)}</text>'


def marker(entry, x, y, radius=5.5):
    fill = "white" if entry.mark == "hollow" else entry.colour
    if entry.mark == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}"/>'
    return (f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{fill}" fill-opacity="0.85" '
            f'stroke="{entry.colour}" stroke-width="2"/>')


def tick(value):
    return f"{value:g}" if 1e-3 <= value < 1e4 else f"1e{round(math.log10(value))}"


def panel(left, which, title, y_label, zero, drawn, plain):
    """One plot of error over time, 360 x 250 pixels."""
    top, width, height = 72, 360, 250
    points = [(entry, *entry.points[which]) for entry in drawn if None not in entry.points.get(which, (None,))]
    x = Axis([ms for _, ms, _ in points] + [plain[which]], left, left + width)
    y = Axis([error for _, _, error in points] + [zero], top + height, top)
    parts = [text(left + width / 2, top - 12, title, 14, "middle", ' font-weight="bold"'),
             f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>']
    for value in x.ticks():
        parts.append(text(x(value), top + height + 17, tick(value), 11, "middle"))
    for value in y.ticks():
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        parts.append(text(left - 6, y(value) + 4, tick(value), 11, "end"))
    parts.append(text(left + width / 2, top + height + 34, "time, ms", 12, "middle"))
    parts.append(text(0, 0, y_label, 12, "middle",
                      f' transform="translate({left - 42} {top + height / 2}) rotate(-90)"'))
    parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y(zero):.1f}" y2="{y(zero):.1f}" stroke="#000" '
                 f'stroke-dasharray="2 3"/>')
    parts.append(text(left + width - 4, y(zero) - 4, "an answer of zeros", 11, "end"))
    at = x(plain[which])
    parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + height}" stroke="#000" stroke-dasharray="6 3"/>')
    parts.append(text(0, 0, "plain products", 11, "start", f' transform="translate({at - 4:.1f} {top + height - 6}) rotate(-90)"'))
    # Stages may coincide: the first lies on top and is the smallest, so that those below it show as rings.
    parts += [marker(entry, x(ms), y(error), 4.5 + 1.2 * index) for index, (entry, ms, error)
              in reversed(list(enumerate(points)))]
    return parts


def cell(value, digits):
    return "–" if value is None else f"{value:.{digits}g}"


def draw():
    record, audit, drawn, plain = entries()
    gpu = record["gpu"]
    parts = [text(20, 26, f"The published workload: {TOKENS} tokens, vocab {record['vocab']}, hidden {record['hidden']}, "
                  f"bf16, uniform inputs", 16, "start", ' font-weight="bold"')]
    parts += panel(90, "forward", f"Loss ({gpu})", "error of the worst token, nats",
                   audit["zero_answer"]["token_loss_worst_absolute"], drawn, plain)
    parts += panel(545, "full", f"Loss and gradients ({gpu})", "relative error of the input gradient",
                   audit["zero_answer"]["student_input_grad_relative_l2"], drawn, plain)
    columns = (60, 370, 500, 680, 850)
    y = 392
    for x, words, anchor in zip(columns, ("", "loss, ms", "worst token, nats", "with gradients, ms", "input gradient"),
                                ("start", "end", "end", "end", "end")):
        parts.append(text(x, y, words, 12, anchor, ' font-weight="bold"'))
    for entry in drawn:
        y += 20
        parts.append(marker(entry, 44, y - 4))
        parts.append(text(columns[0], y, entry.name, 12))
        values = [entry.points.get(which, (None, None)) for which in PASSES]
        cells = [cell(values[0][0], 3), cell(values[0][1], 2), cell(values[1][0], 3), cell(values[1][1], 2)]
        parts += [text(x, y, words, 12, "end") for x, words in zip(columns[1:], cells)]
    y += 26
    date = record["timestamp"][:10]
    for line in (f"Circles: stages of this project. Squares: PyTorch, torch.compile and Liger-Kernel measured again, {gpu}, {date}; "
                 "hollow: as published.",
                 "Errors of stages: measured against float64 truth. Errors of squares: of CPU models of where these "
                 f"implementations round, {audit['workload']['judged_tokens']} of the tokens.",
                 "Liger-Kernel computes the gradients in its forward call."):
        parts.append(text(20, y, line, 11))
        y += 16
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 930 {y}" width="930" height="{y}" '
            f'font-family="sans-serif" role="img" aria-label="Error over time of all stages and published implementations">\n'
            f'<!-- SPDX-License-Identifier: Apache-2.0; written by docs/picture.py from data/ -->\n'
            f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if not FILE.exists() or FILE.read_text() != draw():
            sys.exit(f"{FILE.name} is not what data/ gives. Run python3 docs/picture.py")
    elif sys.argv[1:]:
        sys.exit(f"The argument is {sys.argv[1]!r}, but it must be --check or absent.")
    else:
        FILE.write_text(draw())
