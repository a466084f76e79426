# SPDX-License-Identifier: Apache-2.0
"""A table that prints as plain text and shows as HTML in a notebook."""
from __future__ import annotations

import html


class Table:
    def __init__(self, headings: list[str]):
        self.headings = headings
        self.rows: list[list] = []

    def add(self, cells: list) -> None:
        """Cells are text, numbers (printed with three digits) or None (printed as -)."""
        self.rows.append(cells)

    def __str__(self):
        lines = [self.headings] + [[_text(cell) for cell in row] for row in self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        numeric = self._numeric_columns()
        return "\n".join(
            "  ".join(cell.rjust(width) if right else cell.ljust(width)
                      for cell, width, right in zip(line, widths, numeric)).rstrip()
            for line in lines)

    def html(self) -> str:
        numeric = self._numeric_columns()

        def row(cells, tag):
            inside = "".join(f"<{tag} style='text-align:{'right' if right else 'left'}'>{html.escape(cell)}</{tag}>"
                             for cell, right in zip(cells, numeric))
            return f"<tr>{inside}</tr>"

        body = "".join(row([_text(cell) for cell in cells], "td") for cells in self.rows)
        return f"<table>{row(self.headings, 'th')}{body}</table>"

    def _numeric_columns(self):
        return [any(isinstance(row[column], (int, float)) for row in self.rows) for column in range(len(self.headings))]


def _text(cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.3g}"
    return str(cell)
