# SPDX-License-Identifier: Apache-2.0
"""What all notebooks share: the package fljsd, the program, the committed data, tables and one style of plots.

    from lab import *          # first cell of every notebook

The program is the one that the environment variable FLJSD names, else `fljsd` on the PATH, else that of this checkout,
which is built if it is not.
"""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if "FLJSD" not in os.environ and not shutil.which("fljsd"):
    # Once here, so that not every call of the program asks whether there is something to build.
    subprocess.run([ROOT / "fljsd", "--version"], stdout=subprocess.DEVNULL, check=True)
    os.environ["FLJSD"] = str(ROOT / "build/release/bin/fljsd")
sys.path.insert(0, str(ROOT / "verify" / "python"))
import fljsd  # noqa: E402
import exercises  # noqa: E402

__all__ = ["COLOURS", "fljsd", "np", "plt", "exercises", "audit", "data", "figure", "number", "show_table", "source"]

# Told apart by colour-blind readers (Okabe and Ito).
COLOURS = {"black": "#000000", "orange": "#E69F00", "sky": "#56B4E9", "green": "#009E73", "blue": "#0072B2",
           "vermilion": "#D55E00", "purple": "#CC79A7", "grey": "#888888"}

plt.rcParams.update({
    "figure.figsize": (7.2, 3.6), "figure.dpi": 90, "savefig.dpi": 90, "font.size": 10, "axes.grid": True,
    "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "axes.prop_cycle": plt.cycler(color=[COLOURS[name] for name in (
        "blue", "vermilion", "green", "purple", "orange", "sky", "black", "grey")])})
np.seterr(all="ignore")  # infinities and NaN are part of the subject


def data(path):
    """A file under data/: JSON as it is, CSV as a list of dicts with numbers where the text is one. Lines of a CSV
    file that begin with # say where it comes from, and are left out."""
    text = (ROOT / "data" / path).read_text()
    if path.endswith(".json"):
        return json.loads(text)
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [{key: number(value) for key, value in row.items()} for row in rows]


def number(text):
    try:
        value = float(text)
    except (TypeError, ValueError):
        return text
    return int(value) if value.is_integer() and "." not in str(text) and "e" not in str(text) else value


def audit(*arguments):
    """The report of `fljsd audit ARGUMENTS --json`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.json"
        done = subprocess.run([fljsd.find_program(), "audit", *map(str, arguments), "--json", str(path)],
                              capture_output=True, text=True)
        if done.returncode not in (0, 1):  # 1 is a finding, which the report holds
            raise RuntimeError(done.stderr)
        return json.loads(path.read_text())


def show_table(header, rows):
    """Prints a table. Floats are shown with three significant digits, or as whole numbers; None is a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *cells]) for i in range(len(header))]
    left = [any(isinstance(row[i], str) for row in rows) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *cells]:
        line = (text.ljust(width) if to_left else text.rjust(width)
                for text, width, to_left in zip(row, widths, left))
        print("  ".join(line).rstrip())


def _cell(value):
    if value is None:
        return "-"
    if not isinstance(value, (float, np.floating)):
        return str(value)
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def figure(title, x, y, **size):
    """An axis with a title and labels; `size` is passed to subplots."""
    _, axis = plt.subplots(constrained_layout=True, **size)
    axis.set(title=title, xlabel=x, ylabel=y)
    return axis


def source(record):
    """The line that says where measured numbers come from."""
    return f"{record['gpu']}, {record['timestamp'][:10]}"
