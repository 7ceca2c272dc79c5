"""The role of a thread, from its name and its stack.

PyTorch's are known by their names, except OpenMP's. TensorFlow gives each thread a name, but the
kernel takes none of more than 15 letters, so that those of "tf_data_private_threadpool" and
"tf_numa_-1_Eigen" bear the process's name. The whole name stays where TensorFlow put it
(`ThreadParams`), and the thread's first frame points there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.system.proc.process import Mapping
from dltune.systems.ranks.horovod.watch.horovod_library import Library, within
from dltune.systems.ranks.horovod.watch.memory import Memory
from dltune.systems.ranks.horovod.watch.torch_library import (
    BACKWARD,
    HELPER,
    LOOP,
    OPENMP,
    RUNNER,
)
from dltune.systems.ranks.schemas.horovod import WRITER, Role

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
    """The roles of one process's threads."""

    def __init__(self, pid: int, mapped: Sequence[Mapping], library: Library) -> None:
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
