"""A process seen from outside: identity, CPU time, reads, memory, files and Python stacks.

Most facts come from /proc/PID; the stacks come from py-spy, which does not stop the process.
`may_look_into` checks whether the process can be inspected.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import pwd
import re
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from dltune.system.kernel_files import read

_FILES = re.compile(rb"^RssFile:\s+(\d+) kB", re.M)


class Reads(NamedTuple):
    """Counts of a process or a thread: read calls, the bytes they copied, and the bytes that came
    from storage."""

    calls: int
    copied: int
    storage: int

    def since(self, first: Reads) -> Reads:
        """The growth of every count."""
        return Reads(*(max(0, now - then) for now, then in zip(self, first, strict=True)))


def exists(pid: int) -> bool:
    """Return True if there is such a process; a zombie counts."""
    return Path(f"/proc/{pid}").exists()


def command(pid: int) -> str:
    """The command line; a thread of the kernel, or a process that has ended, has none."""
    data = read(f"/proc/{pid}/cmdline") or b""
    return data.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def owner(pid: int) -> str:
    """The name (else the number) of the user a process runs as."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return "?"
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def environment(pid: int) -> dict[str, str]:
    """Return the environment that the process was started with. Raises OSError when access to it
    is denied."""
    data = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(pair.partition("=")[::2] for pair in data.split("\0") if "=" in pair)


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process, including threads that have ended; None when the process
    has ended."""
    try:
        # the clock that clock_getcpuclockid(3) gives for it
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


def reads(pid: int, tid: int | None = None) -> Reads | None:
    """Return the reads of a process, or of one of its threads; None when it has ended or cannot be
    inspected."""
    data = read(f"/proc/{pid}/io" if tid is None else f"/proc/{pid}/task/{tid}/io")
    if not data:
        return None
    fields = dict(line.split(b": ", 1) for line in data.splitlines())
    return Reads(int(fields[b"syscr"]), int(fields[b"rchar"]), int(fields[b"read_bytes"]))


def address_space(pid: int) -> int:
    """Return the size of the address space in bytes; 0 when the process has ended."""
    return _pages(pid)[0] * mmap.PAGESIZE


def resident(pid: int) -> int:
    """Return the resident memory in bytes; 0 when the process has ended."""
    return _pages(pid)[1] * mmap.PAGESIZE


def anonymous(pid: int) -> int:
    """Return the resident memory without files in bytes; 0 when the process has ended."""
    _, here, files = _pages(pid)
    return (here - files) * mmap.PAGESIZE


def resident_files(pid: int) -> int | None:
    """Bytes of mapped files in its page table, by the kernel's count; None when it has ended."""
    match = _FILES.search(read(f"/proc/{pid}/status") or b"")
    return int(match[1]) * 1024 if match else None


def _pages(pid: int) -> tuple[int, int, int]:
    """Return the pages of the address space, the resident pages, and the resident pages of files;
    0 when the process has ended."""
    size, here, files, *_ = (read(f"/proc/{pid}/statm") or b"0 0 0").split()
    return int(size), int(here), int(files)


def may_look_into(pid: int) -> bool:
    """Return True if the kernel lets this process see another's mappings, descriptors and calls."""
    try:
        with os.scandir(f"/proc/{pid}/fd"), open(f"/proc/{pid}/maps") as file:
            file.read(1)
    except OSError:
        return False
    return True


# The files that a process has mapped, and their parts in its page table: /proc/PID/maps and
# /proc/PID/smaps

_HEADER = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) +(/.*)$", re.M)


class Mapping(NamedTuple):
    """Addresses `start` to `end` show the file from byte `offset` on.

    `path` is of the process's own root, without " (deleted)". `device` and `inode` are as stat(2)
    reports them, except for file systems that make up device numbers (btrfs, overlayfs).
    """

    start: int
    end: int
    offset: int
    executable: bool
    device: int
    inode: int
    path: str


class Resident(NamedTuple):
    """The mapping at address `start`, which shows its file from `offset` on: its resident bytes,
    and the advice passed to madvise: "random", "sequential" or "normal"."""

    start: int
    offset: int
    bytes: int
    advice: str


def mappings(pid: int) -> list[Mapping]:
    """Return the mappings in the order of their addresses. Raises OSError when the process has
    ended or access is denied."""
    return parse_mappings(Path(f"/proc/{pid}/maps").read_bytes())


def parse_mappings(data: bytes) -> list[Mapping]:
    """Parse the lines that show files."""
    return [
        Mapping(
            int(start, 16),
            int(end, 16),
            int(offset, 16),
            b"x" in access,
            _device(device),
            int(inode),
            _name(path),
        )
        for start, end, access, offset, device, inode, path in _HEADER.findall(data)
    ]


def resident_mappings(pid: int) -> list[Resident]:
    """Return the resident part of every mapped file. The kernel walks the page table for it, which
    takes a tenth of a second for ten GiB. Raises OSError when the process has ended or access is
    denied."""
    return list(_parse_resident(Path(f"/proc/{pid}/smaps").read_bytes()))


def _parse_resident(data: bytes) -> Iterator[Resident]:
    header = None
    there = 0
    for line in data.split(b"\n"):
        if line[:1] in b"0123456789abcdef":
            header = _HEADER.match(line)
        elif header is None:
            continue
        elif line.startswith(b"Rss:"):
            there = int(line.split()[1]) * 1024
        elif line.startswith(b"VmFlags:"):
            flags = line.split()
            advice = "random" if b"rr" in flags else "sequential" if b"sr" in flags else "normal"
            yield Resident(int(header[1], 16), int(header[4], 16), there, advice)


# a file has several mappings, and a process's files are on few devices


@functools.lru_cache(maxsize=64)
def _device(told: bytes) -> int:
    major, minor = told.split(b":")
    return os.makedev(int(major, 16), int(minor, 16))


@functools.lru_cache(maxsize=4096)
def _name(path: bytes) -> str:
    return os.fsdecode(path).removesuffix(" (deleted)")


# The files that a process has open: /proc/PID/fd and /proc/PID/fdinfo


class Descriptor(NamedTuple):
    """A descriptor. `place`: a path to the file itself, whatever the file's path now refers to."""

    number: int
    place: str
    status: os.stat_result


class Position(NamedTuple):
    """A descriptor's position in bytes from the file's start, and its flags as in open(2)."""

    at: int
    flags: int


def plain_files(pid: int) -> Iterator[Descriptor]:
    """Yield the plain files that a process has open to read. Raises OSError when it has ended or
    cannot be inspected."""
    with os.scandir(f"/proc/{pid}/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    for number in numbers:
        place = f"/proc/{pid}/fd/{number}"
        with contextlib.suppress(OSError):  # closed meanwhile
            # the link of a process is no path to resolve
            status = os.stat(place)  # noqa: PTH116
            if stat.S_ISREG(status.st_mode) and os.lstat(place).st_mode & stat.S_IRUSR:
                yield Descriptor(number, place, status)


def target(pid: int, number: int) -> str | None:
    """Return a descriptor's target: the path of a file, which can end with " (deleted)", else text
    such as "socket:[123]"; None when it is closed or access is denied."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - as above
    return None


def position(pid: int, number: int) -> Position | None:
    """Return the position; None when the descriptor is closed or access is denied."""
    told = (read(f"/proc/{pid}/fdinfo/{number}") or b"").split()
    return Position(int(told[1]), int(told[3], 8)) if told else None


# The Python stacks of a running process

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
