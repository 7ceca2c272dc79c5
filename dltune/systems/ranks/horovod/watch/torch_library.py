"""PyTorch's library in a process that is a rank of its distributed jobs, and its threads' names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job.rank_layout import local_rank, world
from dltune.system.proc.process import Mapping as Mapped
from dltune.systems.ranks.horovod.watch.horovod_library import Library, version

_NAME = re.compile(r"/torch/lib/libtorch_cpu\.so$")
# of OpenMP, whose threads have no separate names
OPENMP = re.compile(r"/lib(gomp|iomp5|omp)[^/]*\.so[^/]*$")
# threads by the names that gloo and PyTorch give them: the one that waits at the sockets, which
# has none in older releases; those that run the collectives that DDP asks for, in turns
# (ProcessGroupGloo.cpp); what else is there for the ranks; the one that goes backward
LOOP = re.compile(r"gloo_tcp_loop")
RUNNER = re.compile(r"pt_gloo_runloop")
HELPER = re.compile(r"pt_(tcpstore|dist_engine|workerserver)")
BACKWARD = re.compile(r"pt_autograd")


def find(pid: int, mapped: Sequence[Mapped], environ: Mapping[str, str]) -> Library | None:
    """PyTorch's library among a process's mappings; None when it has not loaded it, or is one of
    no several ranks."""
    mapping = next((one for one in mapped if _NAME.search(one.path)), None)
    if mapping is None or not _is_rank(own(environ)):
        return None
    packages = Path(f"/proc/{pid}/root{mapping.path}").parents[2]
    return Library(mapping.path, version(packages, "torch"), (), (), (), is_horovod=False)


def own(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables without those of other launchers, such as srun starting torchrun:
    PyTorch reads only torchrun's."""
    pairs = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if not all(map(environ.get, pairs[0])):
        return environ
    return {name: environ[name] for pair in pairs if all(map(environ.get, pair)) for name in pair}


def _is_rank(environ: Mapping[str, str]) -> bool:
    try:
        local_rank(environ)
        return world(environ).size > 1
    except UsageError:
        return False
