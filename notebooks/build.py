#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the notebooks from their sources, and holds them to it.

    python3 notebooks/build.py [NAME...]           executes source/NAME.py and writes NAME.ipynb with its outputs
    python3 notebooks/build.py --check [NAME...]   executes, writes nothing; fails where an error is raised, or where
                                                   the committed notebook has other cells or other printed results

A source is Python in the percent format, which Jupytext and editors read: `# %% [markdown]` begins a cell of text, each
line a comment, and `# %%` a cell of code. Needs nbformat, nbclient, ipykernel, numpy and matplotlib.
"""
import argparse
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # a debugger that nobody asked for
HERE = Path(__file__).resolve().parent
LARGEST_IMAGE = 100_000  # bytes, so that a clone stays small
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def parse(path):
    """The notebook without outputs that a source describes."""
    cells, lines, markdown = [], [], None

    def finish():
        if markdown is None:
            return
        text = "\n".join(lines).strip("\n")
        if markdown:
            text = "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in text.split("\n"))
        make = nbformat.v4.new_markdown_cell if markdown else nbformat.v4.new_code_cell
        cells.append(make(text, id=f"cell-{len(cells)}"))

    for line in path.read_text().splitlines():
        if line.startswith("# %%"):
            finish()
            markdown, lines = line.startswith("# %% [markdown]"), []
        else:
            lines.append(line)
    finish()
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def execute(path):
    notebook = parse(path)
    metadata = dict(notebook.metadata)
    NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False,
                   resources={"metadata": {"path": str(HERE)}}).execute()
    notebook.metadata = nbformat.from_dict(metadata)  # not the version of this Python
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name == "stderr":
                raise RuntimeError(f"a cell of {path.name} wrote to stderr: {output.text.strip()}")
            if len(output.get("data", {}).get("image/png", "")) > LARGEST_IMAGE * 4 / 3:
                raise RuntimeError(f"a picture of {path.name} has more than {LARGEST_IMAGE} bytes.")
            output.pop("metadata", None) if output.output_type == "stream" else None
            output.get("data", {}).pop("text/plain", None) if "image/png" in output.get("data", {}) else None
        if cell.cell_type == "code":
            cell.outputs = merged(cell.outputs)
    return notebook


def merged(outputs):
    """Pieces of one stream, which arrive as they were flushed, as one."""
    result = []
    for output in outputs:
        if result and output.output_type == result[-1].output_type == "stream":
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def printed(cell):
    """What a cell printed, as one text."""
    return "\n".join(output.text if output.output_type == "stream" else output.data["text/plain"]
                     for output in cell.get("outputs", ())
                     if output.output_type == "stream" or "text/plain" in output.get("data", {}))


def agree(old, new):
    """Whether two printed results are the same. Numbers may differ by one unit of their last digit or by 2 %: another
    processor sums in another order. What is out of date differs by more, or in its words."""
    words = [re.sub(r"[ -]+", " ", NUMBER.sub("#", text)) for text in (old, new)]
    if words[0] != words[1]:
        return False
    return all(close(a, b) for a, b in zip(NUMBER.findall(old), NUMBER.findall(new)))


def close(a, b):
    x, y = float(a), float(b)
    mantissa, _, exponent = a.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    exact = "." not in a + b and "e" not in (a + b).lower()  # counts and names
    return x == y if exact else abs(x - y) <= max(1.001 * unit, 0.02 * max(abs(x), abs(y)))


def differences(notebook, committed):
    if [(c.cell_type, c.source) for c in notebook.cells] != [(c.cell_type, c.source) for c in committed.cells]:
        yield "its cells are not those of the source"
        return
    for index, (new, old) in enumerate(zip(notebook.cells, committed.cells)):
        if not agree(printed(old), printed(new)):
            yield f"cell {index} printed\n{printed(new)}\nbut committed is\n{printed(old)}"
        if len(new.get("outputs", ())) != len(old.get("outputs", ())):
            yield f"cell {index} has another number of outputs"


def main():
    names = sorted(path.stem for path in (HERE / "source").glob("*.py"))
    arguments = argparse.ArgumentParser(description="Makes the notebooks from their sources.")
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    arguments.add_argument("--check", action="store_true", help="compare with what is committed, write nothing")
    options = arguments.parse_args()
    failed = False
    for name in options.names or names:
        if name not in names:
            sys.exit(f"NAME is {name!r}, but it must be one of {', '.join(names)}.")
        target = HERE / f"{name}.ipynb"
        try:
            notebook = execute(HERE / "source" / f"{name}.py")
        except (CellExecutionError, RuntimeError) as error:
            print(f"{name}: " + re.sub(r"\x1b\[[0-9;]*m", "", str(error)))
            failed = True
            continue
        if not options.check:
            nbformat.write(notebook, target)
            print(f"{name}: written, {target.stat().st_size // 1024} KiB")
            continue
        found = list(differences(notebook, nbformat.read(target, 4))) if target.exists() else ["it is not there"]
        for text in found:
            print(f"{name}.ipynb is out of date: {text}\nRun python3 notebooks/build.py {name}")
        failed = failed or bool(found)
        if not found:
            print(f"{name}: as committed")
    sys.exit(failed)


if __name__ == "__main__":
    main()
