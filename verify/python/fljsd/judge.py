# SPDX-License-Identifier: Apache-2.0
"""judge(function): a campaign of `fljsd fuzz` against a function of this very process."""
from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable

from . import _relay
from .candidate import Candidate
from .program import ProgramError, find_program, refusal
from .verdict import Finding, Verdict

__all__ = ["Finding", "Verdict", "judge"]


def judge(function: Callable, *, seconds=None, cases=None, seed=0, families=(), properties=(), recipe=None,
          lacks=(), accuracy_class="fp32-logits", deterministic=False, strided=False, corpus=None, arguments=()) -> Verdict:
    """Runs `fljsd fuzz` against a function: any callable, a closure in a notebook too, that serve() would take.

    seconds, cases  what it may spend, whichever ends first; a minute when neither is given
    seed            of the campaign: the same seed tries the same cases
    families        only these input families, by name or number
    properties      only these checks
    recipe          only the case of this recipe, such as that of a finding, and no search: without seconds, cases,
                    families
    corpus          a folder for counterexamples, which are tried first the next time; absent: a new temporary one
    arguments       more arguments for `fljsd fuzz`

    lacks, accuracy_class, deterministic and strided are those of serve(). The function runs in this process and thread; what it
    prints appears as usual. An exception in it is a finding, not an error here. ProgramError when the program is not
    found or refuses an argument.
    """
    candidate = Candidate(function, lacks, accuracy_class, deterministic, strided)
    kept = Path(corpus) if corpus else Path(tempfile.mkdtemp(prefix="fljsd-corpus-"))
    with tempfile.TemporaryDirectory(prefix="fljsd-judge-") as folder:
        address, report = os.path.join(folder, "socket"), os.path.join(folder, "report.json")
        relay = shlex.join([sys.executable, "-S", "-E", _relay.__file__, address])
        command = [find_program(), "fuzz", "--candidate", f"exec:exec {relay}", "--json", report]
        if recipe is not None:
            command += ["--recipe", recipe]
        else:
            command += ["--seed", str(seed), "--corpus", str(kept)]
        if seconds is not None:
            command += ["--seconds", str(seconds)]
        if cases is not None:
            command += ["--cases", str(cases)]
        for family in families:
            command += ["--family", str(family)]
        for name in properties:
            command += ["--property", name]
        command += map(str, arguments)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(1)
            status, said = _run(command, listener, candidate)
        if status not in (0, 1):
            raise ProgramError(refusal("fuzz", said, status))
        verdict = Verdict(json.loads(Path(report).read_text()), candidate.traceback, recipe is not None)
    if not corpus and (recipe is not None or not verdict.findings):
        shutil.rmtree(kept)  # a folder of our own without counterexamples
    return verdict


def _run(command, listener, candidate) -> tuple[int, str]:
    """Runs the engine and answers its relays until it ends. Its exit status and what it wrote to stderr."""
    show = sys.stderr.isatty()  # then the engine's progress line belongs there
    with tempfile.TemporaryFile("w+") as errors:
        # In a session of its own, so that Ctrl-C reaches this process alone, and the engine through it.
        engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=None if show else errors, start_new_session=True)
        try:
            while engine.poll() is None:
                if select.select([listener], [], [], 0.1)[0]:
                    _serve_connection(listener, candidate)
        except BaseException:  # KeyboardInterrupt above all
            _end(engine)
            raise
        errors.seek(0)
        return engine.returncode, errors.read()


def _serve_connection(listener, candidate) -> None:
    """Answers one relay until it hangs up: the engine starts a new one whenever it drops a candidate's state."""
    connection, _ = listener.accept()
    try:
        with connection, connection.makefile("rwb") as stream:
            for line in stream:
                stream.write(candidate.reply(line).encode() + b"\n")
                stream.flush()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the engine gave up on this case, and says so in its report


def _end(engine) -> None:
    """Lets the engine end by itself, as after Ctrl-C, and makes it end if it does not."""
    engine.send_signal(signal.SIGINT)
    try:
        engine.wait(5)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()
