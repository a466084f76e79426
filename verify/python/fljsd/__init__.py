# SPDX-License-Identifier: Apache-2.0
"""Judges implementations of fused linear + generalized Jensen-Shannon divergence.

    serve(function)      makes a script a candidate for `fljsd fuzz --candidate "exec:python3 script.py"`
    judge(function)      the same from within Python: returns a verdict
    truth(case)          the true losses and gradients
    check(result, case)  the verdict on one result
    generate(family)     a case of one of the input families
    show_config()        what is installed: versions, program, CUDA library, device

docs/verify_your_kernel.md takes a reader from nothing to a verdict.
"""
from .candidate import CLASSES, FEATURES, Unsupported, serve
from .case import Case
from .configuration import config, show_config, version
from .judge import Finding, Verdict, judge
from .program import ProgramError, find_program
from .safetensors import FileError
from .truth import Check, Truth, check, generate, truth

__all__ = ["CLASSES", "FEATURES", "Case", "Check", "FileError", "Finding", "ProgramError", "Truth", "Unsupported",
           "Verdict", "check", "config", "find_program", "generate", "judge", "serve", "show_config", "truth", "version"]
