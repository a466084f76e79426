# SPDX-License-Identifier: Apache-2.0
"""One clear sentence when a package is missing."""
import importlib
import sys


def need(module, package=None):
    """Imports and returns a module; ends the program with status 2 and a sentence when that fails."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"{sys.argv[0]} needs the Python package {package or module}: {error}.", file=sys.stderr)
        sys.exit(2)
