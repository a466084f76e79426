# SPDX-License-Identifier: Apache-2.0
"""What is installed, and what of it works here: the first thing to look at, and to send along with a question."""
from __future__ import annotations

import ctypes
import importlib
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

from . import library
from .program import ProgramError, checkouts, find_program


def version() -> str:
    """Of this package: what CMakeLists.txt of its checkout says, or what was installed."""
    package = Path(__file__).resolve().parent
    for root in checkouts():
        if package.is_relative_to(root):
            return re.search(r"project\(fljsd VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text()).group(1)
    try:
        return metadata.version("fljsd")
    except metadata.PackageNotFoundError:
        return "unknown"


def config() -> dict:
    """What show_config() prints, as text. What is missing is None; why it is, stands under its name with _error."""
    found = {"version": version(), "package": str(Path(__file__).resolve().parent), "python": platform.python_version()}
    try:
        found["program"] = find_program()
        found["program_version"] = _program_version(found["program"])
    except ProgramError as error:
        found.update(program=None, program_error=str(error))
    found.update(_of_torch())  # before the library: see library.load()
    try:
        found["library"] = str(library.find_library())
        found.update(_of_library(library.load()))
    except library.LibraryError as error:
        found.setdefault("library")
        found["library_error"] = str(error)
    return found


def show_config() -> None:
    """Prints version, program, PyTorch, CUDA library, its architectures and stages, and the device."""
    for key, value in config().items():
        if isinstance(value, dict):
            print(f"{key}:")
            for name, text in value.items():
                print(f"  {name:22s} {text}")
        else:
            print(f"{key + ':':18s} {value}")


def _of_torch() -> dict:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return {"torch": None}
    if not torch.cuda.is_available():
        return {"torch": torch.__version__, "device": None}
    major, minor = torch.cuda.get_device_capability()
    return {"torch": torch.__version__,
            "device": f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"}


def _program_version(program) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else f"it ended with status {done.returncode}"


def _of_library(loaded) -> dict:
    number = loaded.fljsd_version()
    stages = {}
    for index in range(loaded.fljsd_stage_count()):
        stage = library.Stage(ctypes.sizeof(library.Stage))
        library.check(loaded.fljsd_stage_get(index, stage))
        if not stage.is_baseline:
            status = loaded.fljsd_stage_available(stage.name, -1)
            stages[stage.name.decode()] = "available" if status == 0 else loaded.fljsd_last_error().decode()
    return {"library_version": f"{number // 10000}.{number // 100 % 100}.{number % 100}",
            "architectures": loaded.fljsd_architectures().decode(), "stages": stages}
