# SPDX-License-Identifier: Apache-2.0
"""Writes the table of reproducing.md that sets programs on a GPU beside the CPU models of where they round.

    python3 docs/program_tables.py           from data/measured/h200/audit-*.json
    python3 docs/program_tables.py --check   fails if the document has other numbers
"""
import json
import sys
from pathlib import Path

import marked_tables

FILE = Path(__file__).resolve().parent / "reproducing.md"
DATA = FILE.parents[1] / "data/measured/h200"
COLUMNS = ("loss_relative", "token_loss_worst_absolute", "student_input_grad_relative_l2",
           "student_input_grad_median_token_relative_l2", "student_weight_grad_relative_l2")


def number(value):
    return "–" if value is None else f"{value:.2g}" if value < 1e3 else f"{value:.0f}"


def table():
    yield "| | loss | worst token's loss | input gradient | its median token | weight gradient |"
    yield "|---|---|---|---|---|---|"
    for name in ("torch-eager", "liger"):
        report = json.loads((DATA / f"audit-{name}.json").read_text())
        is_model = {candidate["name"]: candidate["is_model"] for candidate in report["candidates"]}
        for candidate in report["in_depth"][0]["candidates"]:
            what = "model" if is_model[candidate["name"]] else "program"
            cells = " | ".join(number(candidate["errors"][column]) for column in COLUMNS)
            yield f"| {what} `{candidate['name']}` | {cells} |"


if __name__ == "__main__":
    marked_tables.update(FILE, {"programs": table()}, "program_tables.py", check="--check" in sys.argv[1:])
