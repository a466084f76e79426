# SPDX-License-Identifier: Apache-2.0
"""What a campaign found: the report of `fljsd fuzz --json` as an object that prints, and shows in a notebook."""
from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path

from .case import Case
from .program import number
from .table import Table
from .truth import generate


@dataclass
class Finding:
    """One kind of failure, with the smallest case that showed it."""

    property: str  # the check that failed
    quantity: str  # "loss", "token_loss", "student_input_grad", ...; empty where there is none
    manner: str  # "off", "not finite", "error", "crash", ...
    text: str  # one sentence
    recipe: str  # the case, in one line
    case_file: Path | None  # the case as a file, where one was written
    diagnostics: str = ""  # the end of what the candidate wrote to stderr
    details: dict = field(default_factory=dict, repr=False)  # everything that the report says

    def case(self) -> Case:
        """The case, to call the function with again."""
        return Case.read(self.case_file) if self.case_file else generate(recipe=self.recipe)

    def __str__(self):
        lines = [f"{self.property}{' of ' if self.quantity else ''}{self.quantity} ({self.manner}): {self.text}"]
        value = self.details.get("value")
        if value:
            lines.append(f"  {value['what']}: got {value['got']} ({value['got_hex']}), true {value['truth']} "
                         f"({value['truth_hex']}), allowed off by {number(value['allowed']):.3g}")
        lines.append(f"  recipe {self.recipe}")
        if self.case_file:
            lines.append(f"  file   {self.case_file}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Record:
    """The case whose error came closest to its budget in one family and quantity, of those that kept it."""

    family: str
    quantity: str
    ratio: float  # error / budget
    error: float
    budget: float
    recipe: str  # the case, in one line

    def case(self) -> Case:
        return generate(recipe=self.recipe)


class Verdict:
    """passed, findings, the table of the worst ratios, and everything else in `report`."""

    def __init__(self, report: dict, traceback: str = "", one_recipe: bool = False):
        self.report = report
        self._one_recipe = one_recipe  # then the report has no coverage to speak of
        self.traceback = traceback  # of the last exception in the function, if there was one
        self.findings = [_finding(each) for each in report["findings"]]
        self.records = [
            Record(family, quantity, *(number(holder[key]) for key in ("ratio", "error", "budget")), holder["recipe"])
            for family, holders in report["records"].items() for quantity, holder in holders.items()]

    @property
    def passed(self) -> bool:
        """Whether something was judged and there is no finding."""
        return not self.findings and self.judged

    @property
    def judged(self) -> bool:
        """Whether anything was: a candidate that lacks everything gives nothing to judge."""
        return self._one_recipe or bool(self.report["coverage"]["family_property"])

    @property
    def cases(self) -> int:
        """How often the function was called."""
        return self.report["cases"]

    @property
    def skipped(self) -> dict[str, int]:
        """How many cases were left out, and why: a feature that the candidate lacks, or its own word."""
        return self.report["coverage"]["skipped"]

    @property
    def worst(self) -> Record | None:
        """The case whose error came closest to its budget, of those that kept it (the others are findings); None when
        nothing was compared with the truth."""
        return max(self.records, key=lambda record: record.ratio, default=None)

    def write_worst_case(self, path) -> None:
        """Writes the case of `worst`, for `fljsd loss`, `fljsd check` or Case.read()."""
        if self.worst is None:
            raise ValueError("there is no worst case: nothing was compared with the truth.")
        self.worst.case().write(path)

    def table(self) -> Table:
        """The error closest to its budget of each quantity, of answers that kept it, and in which family."""
        table = Table(["quantity", "error / budget", "error", "budget", "family"])
        worst = {}
        for record in self.records:
            if record.quantity not in worst or record.ratio > worst[record.quantity].ratio:
                worst[record.quantity] = record
        for record in worst.values():
            table.add([record.quantity, record.ratio, record.error, record.budget, record.family])
        return table

    def _heading(self) -> str:
        count = len(self.findings)
        found = "no findings" if not count else "1 finding" if count == 1 else f"{count} findings"
        verdict = "Convicted" if self.findings else "Passed" if self.judged else "Nothing was judged"
        if self._one_recipe:
            return f"{verdict}: {found}; one recipe, class {self.report['class']}."
        return (f"{verdict}: {found}; {self.cases} cases in {self.report['seconds']:.1f} s "
                f"({self.report['cases_per_second']:.0f}/s), {len(self.report['coverage']['family_property'])} families, "
                f"class {self.report['class']}.")

    def _notes(self) -> list[str]:
        skipped = ", ".join(f"{feature} ({count})" for feature, count in self.skipped.items())
        return ([f"Skipped: {skipped}."] if skipped else []) + self.report["warnings"]

    def __str__(self):
        parts = [self._heading(), *map(str, self.findings)]
        if self.records:
            parts.append(str(self.table()))
        parts += self._notes()
        if self.traceback:
            parts.append(f"The last exception in the function:\n{self.traceback.rstrip()}")
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self):
        findings = "".join(f"<pre>{html.escape(str(finding))}</pre>" for finding in self.findings)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        traceback = f"<pre>{html.escape(self.traceback)}</pre>" if self.traceback else ""
        return f"<p><b>{html.escape(self._heading())}</b></p>{findings}{self.table().html()}{notes}{traceback}"


def _finding(entry: dict) -> Finding:
    case_file = Path(entry["case_file"]) if entry["case_file"] else None
    return Finding(*(entry[key] for key in ("property", "quantity", "manner", "text", "recipe")), case_file,
                   entry["diagnostics"], entry)
