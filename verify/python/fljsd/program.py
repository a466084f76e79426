# SPDX-License-Identifier: Apache-2.0
"""Finds and runs the program `fljsd`."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

PREFIX = Path(__file__).resolve().parent / "installed"  # bin/ and lib/, in an installation by `pip install .`


class ProgramError(RuntimeError):
    """The program was not found, or refused what it was given. One sentence."""


def find_program() -> str:
    """The environment variable FLJSD, else the program that was installed with this package, else `fljsd` on the PATH,
    else the script of the checkout that this package was installed from. ProgramError when there is none."""
    named = os.environ.get("FLJSD")
    if named:
        found = shutil.which(named)
        if not found:
            raise ProgramError(f"the environment variable FLJSD is {named!r}, but that is not a program.")
        return found
    found = _installed() or shutil.which("fljsd")
    if found:
        return found
    for folder in checkouts():
        if os.access(folder / "fljsd", os.X_OK):
            return str(folder / "fljsd")
    raise ProgramError("the program fljsd was not found: set the environment variable FLJSD to it (in a checkout of "
                       "the project it is ./fljsd), or put it on the PATH.")


def _installed() -> str | None:
    return shutil.which(PREFIX / "bin" / "fljsd")


def main():
    """The command `fljsd` of an installation by pip."""
    program = _installed()
    if program is None:
        sys.exit("fljsd: this package was installed without the program: pip install . in the root of a checkout.")
    os.execv(program, [program, *sys.argv[1:]])


def checkouts():
    """Where the checkout may be: around this file, or what pip was told to install."""
    places = [Path(__file__).resolve().parents[3]]
    with contextlib.suppress(metadata.PackageNotFoundError, TypeError, ValueError, KeyError):
        url = urlparse(json.loads(metadata.distribution("fljsd").read_text("direct_url.json"))["url"])
        if url.scheme == "file":  # the root, or verify/python
            places += [Path(unquote(url.path)), Path(unquote(url.path)).parent.parent]
    return [place for place in places
            if (place / "CMakeLists.txt").is_file() and (place / "verify" / "python" / "fljsd").is_dir()]


def run_json(*arguments) -> tuple[dict, int]:
    """Runs the program with `--json` and returns what it printed and its exit status, 0 (fine) or 1 (a finding).
    ProgramError with its own sentence for anything else."""
    command = [find_program(), *map(str, arguments), "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise ProgramError(refusal(arguments[0], done.stderr, done.returncode))
    return json.loads(done.stdout), done.returncode


def refusal(command, said, status) -> str:
    """The sentence for a command that ended with another status than 0 and 1."""
    return f"fljsd {command} failed: " + (said.strip().removeprefix("fljsd: ") or f"it ended with status {status}.")


def number(value) -> float | None:
    """A number of the program's JSON, where those that are not finite are strings."""
    return None if value is None else float(value)
