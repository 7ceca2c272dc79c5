"""Real ranks of DistributedDataParallel's: their threads, and the one that the others wait for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from hooked import JOBS
from torches import TORCH_PYTHON, needs_torch
from two_ranks import free_port

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.system.proc.stat import Tree
from dltune.systems.ranks.allreduce.measurements import observed
from dltune.systems.ranks.horovod.watch import document
from dltune.systems.ranks.horovod.watch.ranks import RankSeen
from dltune.systems.ranks.horovod.watch.watch import Watch

pytestmark = [pytest.mark.tensorflow, needs_torch]

PATIENCE = 240.0  # seconds in which what a test waits for must have come
WAITS = 20  # of a thread at its sockets: several steps'


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[bytes]]:
    port = ("--master-port", str(free_port()))
    where = ("--nproc-per-node", "2", "--master-addr", "127.0.0.1", *port)
    command = [TORCH_PYTHON.parent / "torchrun", *where, JOBS / "torch_ranks.py"]
    # two threads a rank: the second is OpenMP's
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    with subprocess.Popen(command, env=environment) as running:
        yield running
        running.terminate()


def test_their_threads_have_roles(launcher):
    def known() -> bool:
        """All threads of both have trained for a while."""
        seen = watch.of_job()
        return len(seen) == 2 and all(
            rank.stack
            and rank.until - rank.since > 4.0
            and "compute" in roles(rank)
            and waits(rank) > WAITS
            for rank in seen
        )

    def waits(rank: RankSeen) -> int:
        return sum(one.used.voluntary for tid, one in rank.current() if tid == rank.stack)

    def roles(rank: RankSeen) -> set[str]:
        return {one.identity.role for _, one in rank.current() if one.identity}

    with Watch(Tree(launcher.pid)) as watch:
        watch.run(PATIENCE, known, lambda: None)
        report = document.assemble(watch, ("torchrun",), None, False)
    assert struct_faults("", report) == []
    assert [(one.rank, one.size, one.controller) for one in report.ranks] == [
        (0, 2, "gloo"),
        (1, 2, "gloo"),
    ]
    for rank in report.ranks:
        assert (rank.library, rank.horovod, rank.cycles) == ("PyTorch", None, None)
        assert (rank.pytorch or "").startswith("2.")
        assert rank.settings["OMP_NUM_THREADS"] == "2"
        assert rank.evidence == ("name",)
        assert rank.thread
        assert rank.thread.name in ("gloo_tcp_loop", "pt_gloo_runloop")
        assert rank.thread.voluntary * rank.seconds > WAITS  # at the sockets, in each step
        helpers = [one.name for one in rank.threads if one.role == "helper"]
        assert "pt_gloo_runloop" in helpers
        (main,) = (one for one in rank.threads if one.tid == rank.pid)
        assert main.role == "python"
    with pytest.raises(UsageError, match="the report is of PyTorch DDP ranks"):
        observed(report)
