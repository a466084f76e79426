# SPDX-License-Identifier: Apache-2.0
"""The true answer of a case, the verdict on one result, and generated cases: `fljsd loss`, `check` and `gen`."""
from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import formats, safetensors
from .candidate import write_result
from .case import Case
from .program import number, run_json
from .table import Table


@contextmanager
def _folder():
    """A folder for files that the program reads, in memory where the system offers that."""
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fljsd-", dir=base) as name:
        yield Path(name)


@dataclass
class Truth:
    """True values as float64: each correct to its last bits in the tier "double"; in the tier "certified" the double
    nearest to the exact value where `settled`, else the middle of its enclosure."""

    tier: str
    loss: float | None  # None where the reduction is none
    token_loss: np.ndarray  # [tokens]
    student_input_grad: np.ndarray | None = None  # [tokens, student_hidden]
    student_weight_grad: np.ndarray | None = None  # [vocab, student_hidden]
    student_bias_grad: np.ndarray | None = None  # [vocab], also for a student without bias
    # Of the certified tier, as decimal text that encloses the exact value.
    loss_bounds: tuple[str, str] | None = None
    token_loss_bounds: list[tuple[str, str]] | None = None
    settled: bool | None = None  # whether each loss is known to round to the double given

    def __repr__(self):
        bounds = f", bounds {self.loss_bounds[0]} to {self.loss_bounds[1]}" if self.loss_bounds else ""
        return f"Truth({self.tier}: loss {self.loss!r}{bounds}, {len(self.token_loss)} tokens)"


def truth(*arrays, certified=False, grad=True, **options) -> Truth:
    """The true losses and gradients of a Case, or of the arrays and options that Case takes.

    certified=True encloses the exact values by interval arithmetic; with gradients that is for small cases only.
    """
    case = _case(arrays, options)
    with _folder() as folder:
        case.write(folder / "case.safetensors")
        tier = "certified" if certified else "double"
        flags = ["--grad"] if grad else []
        report, _ = run_json("loss", folder / "case.safetensors", "--tier", tier, *flags,
                             "--out", folder / "truth.safetensors")
        tensors, _ = safetensors.read(folder / "truth.safetensors")
    values = {name: formats.decode(tensor).copy() for name, tensor in tensors.items() if name != "loss"}
    loss = report["loss"]
    answer = Truth(tier, None if loss is None else number(loss["value"]), **values)
    if certified:
        if loss is not None:
            answer.loss_bounds = loss["lo"], loss["hi"]
        answer.token_loss_bounds = [(token["lo"], token["hi"]) for token in report["token_loss"]]
        losses = report["token_loss"] + ([loss] if loss is not None else [])
        answer.settled = all(each["rounds_to"] is not None for each in losses)
    return answer


def _case(arrays, options) -> Case:
    if len(arrays) == 1 and isinstance(arrays[0], Case):
        if options:
            raise TypeError(f"a Case already holds its options, but {', '.join(options)} was given besides.")
        return arrays[0]
    return Case(*arrays, **options)


@dataclass
class Check:
    """The verdict on one result: every error beside the budget of its accuracy class."""

    passed: bool
    accuracy_class: str
    rows: list[dict]  # as `fljsd check --json` gives them: quantity, measure, error, budget, ratio, judged, pass, note

    @property
    def worst(self) -> dict | None:
        """The row that comes closest to its budget or goes furthest beyond it; None when nothing was judged."""
        judged = [row for row in self.rows if row["judged"]]
        # NaN and what failed count as worse than any number.
        return max(judged, key=lambda row: (not row["pass"], number(row["ratio"]) or 0), default=None)

    def _table(self) -> Table:
        table = Table(["quantity", "measure", "error", "budget", "ratio", "", "zeros would score"])
        for row in self.rows:
            outcome = "not judged" if not row["judged"] else "ok" if row["pass"] else "BROKEN"
            numbers = [number(row[key]) for key in ("error", "budget", "ratio")]
            table.add([row["quantity"], row["measure"], *numbers, outcome, number(row["zero_error"])])
        return table

    def __str__(self):
        return f"{self._heading()}\n{self._table()}"

    __repr__ = __str__

    def _heading(self):
        return f"{'Kept' if self.passed else 'Broken'}: the budgets of the class {self.accuracy_class}."

    def _repr_html_(self):
        return f"<p>{self._heading()}</p>{self._table().html()}"


def check(result, *arrays, accuracy_class="fp32-logits", **options) -> Check:
    """Judges a result (a dict as a candidate returns it, or a loss) for a Case, or for the arrays that Case takes."""
    case = _case(arrays, options)
    with _folder() as folder:
        case.write(folder / "case.safetensors")
        write_result(folder / "result.safetensors", result)
        report, status = run_json("check", folder / "case.safetensors", folder / "result.safetensors",
                                  "--class", accuracy_class)
    return Check(status == 0, accuracy_class, report["rows"])


def generate(family=None, *, recipe=None, **options) -> Case:
    """A case of one of the input families (`fljsd gen --list`), by name or number. Options are those of `fljsd gen`:
    tokens, hidden and vocab, which it needs; teacher_hidden, seed, dtype, strength, bias=True, beta, temperature,
    reduction, ignore_index, valid_vocab. Or the case of a recipe, a line of text that says everything by itself."""
    flags = [f"--recipe={recipe}"] if recipe is not None else [family]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        flags += ([flag] if value else []) if isinstance(value, bool) else [f"{flag}={value}"]
    with _folder() as folder:
        run_json("gen", *flags, "--out", folder / "case.safetensors")
        return Case.read(folder / "case.safetensors")
