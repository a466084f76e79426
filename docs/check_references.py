#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the mathematics of the documents to the code: python3 docs/check_references.py

In math.md, error_analysis.md and one_pass.md, every section with a displayed formula says who implements it and who
checks it ("implemented by", "checked by"; derivations that no code evaluates say "not evaluated by code"), and
everything that is named after these words exists: files, functions and types of reference/, cuda/ and verify/, tests.
In all documents, links to files of this project lead somewhere.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MATHEMATICS = ("math.md", "error_analysis.md", "one_pass.md")
FOLDERS = ("reference", "cuda", "verify")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
           if path.suffix in (".h", ".cpp", ".cu", ".cuh")]
CODE = {path: path.read_text() for path in SOURCES}
TESTS = {f"{suite}.{name}" for path, text in CODE.items() if "/tests/" in str(path)
         for suite, name in re.findall(r"\b(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP|TYPED_TEST)\(\s*(\w+),\s*(\w+)", text)}
NAMES = set(re.findall(r"\b[A-Za-z_]\w+\b", "\n".join(text for path, text in CODE.items() if "/tests/" not in str(path))))
FILES = {path.name for path in SOURCES}


def is_test(name):
    """Suite.Name, Name alone, Suite.* or Name... (a beginning)."""
    pattern = re.escape(name).replace(r"\.\.\.", r"\w*").replace(r"\*", r"\w*")
    return any(re.fullmatch(pattern, test if "." in name.replace("...", "") else test.split(".")[1]) for test in TESTS)


def exists(name):
    name = name.strip()
    if "/" in name or re.search(r"\.(h|cpp|cu|cuh|csv)$", name):
        return name in FILES or any((ROOT / folder / name).exists() for folder in ("", *FOLDERS))
    parts = re.findall(r"[A-Za-z_]\w+", re.sub(r"\(.*", "", name))
    return is_test(name) or bool(parts) and all(part in NAMES for part in parts)


def claims(section, word):
    """The names in backticks of the sentences that begin with `word`: up to the next such word or the paragraph's end."""
    found = []
    for match in re.finditer(rf"\b{word}\b(.*?)(?=\b[Ii]mplemented by\b|\b[Cc]hecked by\b|\n\n|\Z)", section, re.S):
        found += re.findall(r"`([^`]+)`", match.group(1))
    return found


def faults_of_mathematics(name, text):
    for section in re.split(r"(?m)^(?=## )", text)[1:]:
        title = section.splitlines()[0].lstrip("# ")
        implemented, checked = claims(section, "[Ii]mplemented by"), claims(section, "[Cc]hecked by")
        if "$$" in section:
            if not implemented and "not evaluated by code" not in section:
                yield f"{name}, {title}: a formula, but nobody is said to implement it"
            if not checked:
                yield f"{name}, {title}: a formula, but nothing is said to check it"
        for each in implemented + checked:
            if not exists(each):
                yield f"{name}, {title}: `{each}` is named, but does not exist"


def faults_of_links(path, text):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http") and not (path.parent / target).exists():
            yield f"{path.relative_to(ROOT)}: the link to {target} leads nowhere"


def main():
    faults = []
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "data").rglob("*.md"),
                        *(ROOT / "notebooks").glob("*.md"), *(ROOT / "notebooks/source").glob("*.py")]):
        text = path.read_text()
        where = path if path.suffix == ".md" else path.parent  # a notebook lies one folder above its source
        faults += faults_of_links(where, text)
        if path.parent.name == "docs" and path.name in MATHEMATICS:
            faults += faults_of_mathematics(path.name, text)
    print("\n".join(faults) if faults else f"Documents agree with the code: {len(TESTS)} tests, {len(SOURCES)} sources known.")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
