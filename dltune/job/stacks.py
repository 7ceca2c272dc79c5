"""The Python stacks of a running process, as py-spy sees them without stopping it."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

# a sample that takes longer is given up
PATIENCE_SECONDS = 5.0

# files of the interpreter's own library
STANDARD_LIBRARY = re.compile(
    r"^<frozen |/lib(64)?/python3\.\d+/(?!(site|dist)-packages/)|/python3\d+\.zip/"
)
# Frames that are not the job's either: the frameworks, AutoGraph's versions of the job's functions
# while it traced them, dltune's files in the job. Among the rest, installed packages come last,
# and after them files that can be the command that a package installs.
_FOREIGN = re.compile(
    rf"{STANDARD_LIBRARY.pattern}"
    r"|/(site|dist)-packages/(tensorflow|keras|tf_keras|torch|absl|horovod)/|__autograph_generated_file"
    r"|/_dltune_\w+\.py$"
)
_INSTALLED = re.compile(r"/(site|dist)-packages/")
_COMMAND = re.compile(r"/bin/[^/.]+$")
_TORCH = re.compile(r"/(site|dist)-packages/torch/")


class NoStack(Exception):
    """Reason why a sample failed, in one sentence."""


class Frame(msgspec.Struct, frozen=True):
    """A Python function that a thread is in: its file's full path, and the line there."""

    name: str
    filename: str
    line: int


class Thread(msgspec.Struct, frozen=True):
    """One thread as `py-spy dump --json` reports it, the innermost frame first."""

    os_thread_id: int | None
    frames: list[Frame]


_decode = msgspec.json.Decoder(list[Thread]).decode


def stacks(command: str, pid: int, *, gently: bool = False) -> list[Thread]:
    """Return the threads of `pid` that run Python; `command` is py-spy's; `gently`: only with CPU
    time that nobody else wants.

    py-spy does not pause the process: a sample taken while the stack changes fails. Raises NoStack.
    """
    arguments = [command, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    if gently:
        arguments = ["nice", "-n", "19", *arguments]
    try:
        # out of the terminal's reach: ^C is for dltune to answer
        looked = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise NoStack(f"py-spy took longer than {PATIENCE_SECONDS:.0f} s for a sample") from None
    except OSError as error:
        raise NoStack(f"py-spy could not be started: {error}") from None
    if looked.returncode != 0:
        raise NoStack(_reason(looked.stderr.decode(errors="replace")))
    try:
        return _decode(looked.stdout)
    except msgspec.DecodeError as error:
        raise NoStack(
            f"dltune cannot parse the output of this version of py-spy: {error}"
        ) from None


def own_line(stack: Sequence[Frame]) -> str | None:
    """Return the innermost frame of the job's own code, as "file.py:31 (function)"; the frame of an
    installed package when the whole job is a package; None when there is neither."""
    frame = own_frame(stack)
    return f"{_shown(frame.filename)}:{frame.line} ({frame.name})" if frame else None


def _shown(filename: str) -> str:
    """Return the path below dltune's current folder or below the installed packages; else the
    name."""
    if match := _INSTALLED.search(filename):
        return filename[match.end() :]
    path = Path(filename)
    with contextlib.suppress(OSError):  # the folder was removed
        if path.is_relative_to(here := Path.cwd()):
            return str(path.relative_to(here))
    return path.name


def calls_torch(stack: Sequence[Frame]) -> bool:
    """Return True if a thread with this stack, innermost frame first, is in PyTorch: in an op or
    the code around it."""
    return bool(stack) and _TORCH.search(stack[0].filename) is not None


def own_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the frame that `own_line` describes."""
    candidates = [frame for frame in stack if not _FOREIGN.search(frame.filename)]
    packages = [frame for frame in candidates if not _COMMAND.search(frame.filename)]
    own = [frame for frame in packages if not _INSTALLED.search(frame.filename)]
    return next(iter(own or packages or candidates), None)


def _reason(stderr: str) -> str:
    """Return why a sample failed, from py-spy's output."""
    if "ermission denied" in stderr or "Permission Denied" in stderr:
        return "py-spy is not permitted to read the job's memory: permission denied"
    if "No such file" in stderr or "No such process" in stderr:
        return "the job's process ended before py-spy could sample it"
    first = next(iter(stderr.strip().splitlines()), "no error message")
    return f"py-spy failed: {first.removeprefix('Error: ')}"
