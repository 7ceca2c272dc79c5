"""Test programs with what runs inside a job but needs no framework, built with sanitizers."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import dltune
from dltune.native.build import compiler

PACKAGE = Path(dltune.__file__).parent
CORE = Path(__file__).parent / "native" / "core"  # the programs of core, and what others include
MEMORY, THREADS = "address,undefined", "thread"
FLAGS = [
    *("-std=c++17", "-O0", "-g1", "-pthread", "-Wall", "-Wextra"),
    *(f"-I{folder}" for folder in (PACKAGE, PACKAGE / "native", CORE)),
]


@functools.cache
def core(sanitizer: str) -> list[str | Path]:
    """The core, compiled with a sanitizer, and the command that links it to a test program."""
    folder = Path(tempfile.mkdtemp(prefix="dltune-core-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [*compiler(), *FLAGS, f"-fsanitize={sanitizer}"]
    (folder / "empty.cc").write_text("int main() { return 0; }\n")
    empty = [*command, "-o", folder / "empty", folder / "empty.cc"]
    if subprocess.run(empty, capture_output=True).returncode != 0:
        pytest.skip(f"{command[0]} has no -fsanitize={sanitizer} here")
    sources = sorted((PACKAGE / "native" / "core").glob("*.cc"))
    subprocess.run([*command, "-c", *sources], cwd=folder, check=True)
    return [*command, *sorted(folder.glob("*.o"))]


@functools.cache
def program(source: Path, sanitizer: str, *parts: Path) -> Path:
    """Build the test program `source` with core and `parts`, sources of an adapter or a system."""
    linked = core(sanitizer)
    made = Path(tempfile.mkdtemp(dir=Path(linked[-1]).parent)) / source.stem
    # what a program has in an interpreter's place is found by its name
    subprocess.run([*linked, "-rdynamic", "-o", made, source, *parts], check=True)
    return made


def run(
    source: Path,
    sanitizer: str,
    *arguments: object,
    told: bytes = b"",
    parts: tuple[Path, ...] = (),
) -> tuple[str, str]:
    """What it said on standard output and standard error. It ended well, with nothing reported."""
    command = [str(program(source, sanitizer, *parts)), *map(str, arguments)]
    if sanitizer == THREADS and (setarch := shutil.which("setarch")):
        # its shadow memory has no room for what newer kernels' randomisation spreads about
        command = [setarch, "-R", *command]
    done = subprocess.run(command, input=told, capture_output=True, timeout=550)
    said, errors = done.stdout.decode("latin-1"), done.stderr.decode(errors="replace")
    assert done.returncode == 0, errors + said[-2000:]
    assert "Sanitizer" not in errors, errors
    assert "runtime error" not in errors, errors
    return said, errors
