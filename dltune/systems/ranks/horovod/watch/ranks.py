"""A process as a rank: its number, settings, versions and usable cores, its threads, its end."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import select
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.job.rank_layout import local_rank, world
from dltune.system.proc import stat
from dltune.system.proc.process import Mapping as Mapped
from dltune.systems.ranks.allreduce.section import Controller
from dltune.systems.ranks.horovod.schema import WRITER, Role
from dltune.systems.ranks.horovod.timeline import CYCLE_TIME
from dltune.systems.ranks.horovod.watch import libraries
from dltune.systems.ranks.horovod.watch.hang import Progress
from dltune.systems.ranks.horovod.watch.libraries import (
    BACKWARD,
    HELPER,
    LOOP,
    OPENMP,
    RUNNER,
    Library,
    Memory,
    Sleeps,
    within,
)
from dltune.watch.sampler import Key, WatchedProcess, WatchedThread

# variables that a launcher sets for each rank separately, and that must not be passed on
_LAUNCHERS = re.compile(
    r"HOROVOD_(HOSTNAME|RANK|SIZE|LOCAL_|CROSS_|GLOO_RENDEZVOUS)"
    r"|OMPI_MCA_(orte_|ess|pmix|shmem_RUNTIME|initial_wdir|rmaps_base_oversubscribe|mpi_oversub)"
    r"|.*(SECRET|KEY)"
)
# the variables that make a process a rank of a job
NUMBERS = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "RANK")
_TOLD = ("HOROVOD_", "OMPI_MCA_", "MPIR_CVAR_")
_TOLD_PYTORCH = ("OMP_", "GOMP_", "KMP_", "GLOO_", "TORCH_")
_MPI_VERSION = re.compile(r"\(?(Open MPI|MPICH|Intel\(R\) MPI)\b\D*(\d[\w.]*)")


@dataclass(frozen=True)
class Identity:
    """The fields of `schemas.horovod.Rank`."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    controller: Controller | None
    mpi: str | None
    settings: dict[str, str]
    library: Library


def identify(
    pid: int, environ: Mapping[str, str], mapped: Sequence[Mapped], library: Library
) -> Identity:
    """Raises UsageError when the environment names two ranks, or half of one."""
    torch = not library.is_horovod
    launched = libraries.own(environ) if torch else environ
    try:
        where, here = world(launched), local_rank(launched)
    except UsageError as error:
        raise UsageError(f"pid {pid}: {error}", remedy=error.remedy) from None
    libmpi = next((m.path for m in mapped if re.search(r"/libmpi(ch)?\.so[^/]*$", m.path)), None)
    return Identity(
        rank=where.rank,
        size=where.size,
        local_rank=here.rank if here else 0,
        local_size=here.size if here else 1,
        host=socket.gethostname(),
        # of what PyTorch's wheels are built with, gloo is for CPUs
        controller="gloo" if torch else _controller(environ, libmpi),
        mpi=_mpi_version(libmpi) if libmpi else None,
        settings=settings(environ, _TOLD_PYTORCH if torch else _TOLD),
        library=library,
    )


def settings(environ: Mapping[str, str], told: tuple[str, ...] = _TOLD) -> dict[str, str]:
    """Return the settings of Horovod and MPI, or of others by the beginnings of their variables,
    without the variables that each launcher sets for each rank."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(told) and not _LAUNCHERS.match(name)
    }


def cycle_time(told: Mapping[str, str]) -> float:
    """Seconds of HOROVOD_CYCLE_TIME, which is in milliseconds."""
    try:
        return max(0.0, float(told["HOROVOD_CYCLE_TIME"]) * 1e-3)
    except (KeyError, ValueError):
        return CYCLE_TIME


@functools.cache
def node() -> frozenset[int]:
    """Return the CPUs that this control group can use: a launcher's binding does not change
    these."""
    from dltune.system.topology import survey

    found = survey()
    return found.cpuset or frozenset().union(*found.host_cores)


def cores() -> int:
    """Physical cores of the node, within the control group's."""
    from dltune.system.topology import survey

    allowed = node()
    return sum(1 for core in survey().host_cores if core & allowed)


def _controller(environ: Mapping[str, str], libmpi: str | None) -> Controller:
    told = environ.get("HOROVOD_CONTROLLER", "").lower()
    # Horovod's own choice: MPI where it was built with it
    return "mpi" if told == "mpi" or (libmpi and told != "gloo") else "gloo"


@functools.lru_cache(maxsize=8)
def _mpi_version(libmpi: str) -> str | None:
    """Return the version line of the launcher that was installed with the library, such as "Open
    MPI 4.1.8"."""
    launcher = Path(libmpi).parent.parent / "bin" / "mpirun"
    try:
        told = subprocess.run(
            [str(launcher), "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = _MPI_VERSION.search(told)
    return f"{found[1]} {found[2]}" if found else None


_NAME = re.compile(rb"(tf|TF|tfrt|xla|dltune)[\w/.:-]*")
_STRING = struct.Struct("=QQ")
_HIGHEST = 1 << 47
# libraries of MPI and of its foundations
_MPI = re.compile(
    r"/(libmpi|libopen-(rte|pal)|libpmix|libprrte|libevent|libhwloc|libucp|libucs|libuct|libfabric"
    r"|libpsm2|libibverbs|libmlx5|libmpich|mca_)[^/]*$"
)
# the interpreter's own code
_PYTHON = re.compile(r"/(python[\d.]*|libpython[^/]*\.so[^/]*)$")


@dataclass(frozen=True)
class ThreadIdentity:
    """`name`: in full."""

    role: Role
    name: str


class Roles:
    """The roles of one process's threads, from their names and their stacks.

    PyTorch's are known by their names, except OpenMP's. TensorFlow gives each thread a name, but
    the kernel takes none of more than 15 letters, so that those of "tf_data_private_threadpool" and
    "tf_numa_-1_Eigen" bear the process's name. The whole name stays where TensorFlow put it
    (`ThreadParams`), and the thread's first frame points there.
    """

    def __init__(self, pid: int, mapped: Sequence[Mapped], library: Library) -> None:
        self._pid = pid
        self._library = library
        code = [mapping for mapping in mapped if mapping.executable]
        mpi = (range(m.start, m.end) for m in code if _MPI.search(m.path))
        self._helpers = [*library.code, *mpi]
        self._python = [range(m.start, m.end) for m in code if _PYTHON.search(m.path)]
        self._openmp = [range(m.start, m.end) for m in code if OPENMP.search(m.path)]

    def tell(self, memory: Memory, tid: int, comm: str) -> ThreadIdentity | None:
        """Return a thread's role; None when it must be sampled again, because it runs now."""
        if tid == self._pid:
            return ThreadIdentity("python", comm)
        if _NAME.match(comm.encode()):
            return ThreadIdentity(_of_tensorflow(comm), comm)
        if not self._library.is_horovod and (role := _of_pytorch(comm)):
            return ThreadIdentity(role, comm)
        stack = memory.stack(tid)
        if stack is None:
            return None
        if returns(memory, stack, self._library.loop):
            return ThreadIdentity("background", comm)
        if name := _own_name(memory, stack):
            return ThreadIdentity(_of_tensorflow(name), name)
        if returns(memory, stack, self._library.writer):
            return ThreadIdentity("helper", WRITER)
        if returns(memory, stack, self._helpers):
            return ThreadIdentity("helper", comm)
        if returns(memory, stack, self._openmp):
            return ThreadIdentity("compute", comm)
        return ThreadIdentity("python" if returns(memory, stack, self._python) else "other", comm)


def _of_tensorflow(name: str) -> Role:
    return "input" if name.startswith("tf_data") else "compute"


def _of_pytorch(name: str) -> Role | None:
    """None: a thread that PyTorch gives no name."""
    if LOOP.match(name) or RUNNER.match(name):
        return "background"
    if HELPER.match(name):
        return "helper"
    return "compute" if BACKWARD.match(name) else None


def returns(memory: Memory, stack: Sequence[int], code: Sequence[range]) -> bool:
    """True if a function in these addresses has called the present function of the thread with this
    stack."""
    return any(memory.is_return(word) for word in within(stack, code))


def _own_name(memory: Memory, stack: Sequence[int]) -> str | None:
    """The name in the std::string that a thread's first frame points to."""
    for word in dict.fromkeys(stack):
        if word & 7 or not 0 < word < _HIGHEST:
            continue
        data = memory.read(word, _STRING.size)
        if len(data) < _STRING.size:
            continue
        at, size = _STRING.unpack(data)
        if 3 < size < 100 and at < _HIGHEST:
            text = memory.read(at, size)
            if _NAME.fullmatch(text):
                return text.decode()
    return None


# struct pidfd_info as of Linux 6.13, and _IOWR(0xFF, 11, of it); bit 3 of the mask: the exit code
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3


class Ending:
    """Watches for the end of `pid`, which the kernel shows whole to this process.

    Raises OSError when there is no such process.

    It reports when a process that is not a child of this process ended, and how. A pidfd gives the
    moment. The exit code is in the zombie's stat (for processes with permission to trace it), and
    from Linux 6.15 on the pidfd keeps it after another process has taken the zombie away.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle = os.pidfd_open(pid)
        self.code: int | None = None

    def fileno(self) -> int:
        """To be polled: readable once the process has ended."""
        return self._handle

    def ended(self) -> bool:
        """True if it has; `code` is then its exit code, or the signal that ended it as a negative
        number, as soon as the kernel reports it."""
        ready, _, _ = select.select([self._handle], [], [], 0)
        if ready and self.code is None:
            status = self._of_zombie()
            if status is None:
                status = self._after()
            self.code = None if status is None else os.waitstatus_to_exitcode(status)
        return bool(ready)

    def close(self) -> None:
        os.close(self._handle)

    def _of_zombie(self) -> int | None:
        zombie = stat.of_process(self._pid)
        return zombie.exit_code if zombie and zombie.state == "Z" else None

    def _after(self) -> int | None:
        with contextlib.suppress(OSError):
            answer = fcntl.ioctl(self._handle, _GET_INFO, _INFO.pack(_EXIT, *[0] * 13))
            mask, *_, status = _INFO.unpack(answer)
            if mask & _EXIT:
                return int(status)
        return None


@dataclass(kw_only=True)
class ThreadSeen(WatchedThread):
    """A thread of a rank. `identity`: its role and name, None until it was seen at rest."""

    identity: ThreadIdentity | None = None


@dataclass(kw_only=True)
class RankSeen(WatchedProcess[ThreadSeen]):
    """A process with Horovod's library, or PyTorch's.

    `numbered`: its launcher gave it its rank number. `cpu`: of the process, `since` then and
    `until` now. `stack`: the thread that is in the background loop. `init`: the job's message on
    hvd.init(). `refused`: why its memory cannot be read.
    """

    identity: Identity
    numbered: bool
    roles: Roles
    cpu: tuple[float, float]
    ending: Ending
    thread_type: type[ThreadSeen] = ThreadSeen
    looks: dict[Key, int] = field(default_factory=dict)
    stack: int | None = None
    init: protocol.Horovod | None = None
    ended_at: float | None = None
    refused: str | None = None
    progress: Progress = field(default_factory=Progress)
    sleeps: Sleeps | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings at hvd.init() where the job reports them, else those at the process's
        start."""
        return settings(self.init.settings) if self.init else self.identity.settings

    @property
    def background(self) -> int | None:
        """Return its background thread; by its stack where the two ways disagree: the stack shows
        the present activity."""
        if self.stack is None and self.init and self.init.threads:
            return self.init.threads[0]
        return self.stack

    @property
    def cycles(self) -> bool:
        """Its background thread goes on when there is nothing to send, as Horovod's does."""
        return self.identity.library.is_horovod

    def note_background(self, tid: int, name: str) -> None:
        """Note a thread that sends; of PyTorch's several threads, the thread that waits at the
        sockets counts."""
        if self.cycles or self.stack is None or libraries.LOOP.match(name):
            self.stack = tid
