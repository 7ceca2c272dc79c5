"""Who hangs, by what is known of the ranks' progress and where their Python stands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dltune.system.checks.software import py_spy
from dltune.system.proc import process, stat
from dltune.system.proc.process import Frame, NoStack, Thread
from dltune.systems.ranks.horovod.watch import hang
from dltune.systems.ranks.horovod.watch.hang import HUNG_SECONDS, Progress, hung

Started = Callable[..., "subprocess.Popen[bytes]"]

needs_py_spy = pytest.mark.skipif(py_spy().state != "ok", reason=py_spy().found)
STILL = "its background thread has made no progress for 10 s"
# a package of that name, whose function calls back or waits
RUNTIME = """
import time
def execute(op=lambda: print("ready", flush=True) or time.sleep(600)):
    op()
"""


@dataclass
class Rank:
    """Its background thread used `used` CPU seconds while it was watched, all else `others`."""

    pid: int
    used: float
    others: float = 0.0
    background: int | None = 1
    ended_at: float | None = None
    cycles: bool = True

    @property
    def progress(self) -> Progress:
        made = Progress()
        made.note(0.0, 0.0, 0.0)
        made.note(HUNG_SECONDS, self.used, self.others)
        return made


@pytest.fixture
def standing(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Rank]:
    """A rank that cycles in vain, in Python code of this name. It is in the line where it stays as
    soon as it is ready."""
    # py-spy gets only the CPU time that nobody else wants
    monkeypatch.setattr(process, "PATIENCE_SECONDS", 240.0)
    packages = tmp_path / "site-packages"
    for module in ("tensorflow/eager.py", "torch/utils/data/dataloader.py"):
        path = packages / module
        path.parent.mkdir(parents=True)
        (packages / module.split("/")[0] / "__init__.py").touch()  # not the installed one
        path.write_text(RUNTIME)

    def stand(name: str, code: str) -> Rank:
        script = tmp_path / "horovod" / name  # whatever the job's own folders are called
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"import time\nfrom tensorflow.eager import execute\n{code}")
        run = "import runpy, sys; sys.path.insert(0, sys.argv[2]); runpy.run_path(sys.argv[1])"
        return Rank(started(run, script, packages).pid, 1.0)

    return stand


def test_a_rank_that_was_killed_does_not_hang(started: Started) -> None:
    """It stays a process until its launcher has waited for it, and gets no further."""
    other = started("print('ready', flush=True); import time; time.sleep(600)")
    with started("print('ready', flush=True); import time; time.sleep(600)") as killed:
        ranks = [Rank(other.pid, 1.0), Rank(killed.pid, 0.0)]
        assert hung(ranks) == {killed.pid: STILL}
        killed.kill()
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
        assert hung(ranks) == {}
    assert hung(ranks) == {}


def test_a_rank_that_still_imports_does_not_hang(started: Started) -> None:
    """It has no background thread yet, and the other waits for it in MPI_Init."""
    pids = [started("print('ready'); input()", stdin=subprocess.PIPE).pid for _ in "ab"]
    first = Rank(pids[0], 1.0)
    assert hung([first, Rank(pids[1], 0.0, others=5.0, background=None)]) == {}
    assert hung([first, Rank(pids[1], 0.0, background=None)]) == {
        pids[1]: "it has made no progress for 10 s, and has not joined the other ranks"
    }


def test_a_rank_that_works_does_not_hang(started: Started) -> None:
    """Whatever the thread does that is taken for its background thread."""
    pids = [started("print('ready'); input()", stdin=subprocess.PIPE).pid for _ in "ab"]
    assert hung([Rank(pids[0], 1.0), Rank(pids[1], 0.0, others=5.0)]) == {}


def test_uninterruptible_sleep_counts_when_it_lasts(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page that is read back from storage is such a sleep, of milliseconds."""
    code = "print('ready', flush=True); import time; time.sleep(600)"
    ranks = [Rank(started(code).pid, cycles) for cycles in (1.0, 0.0)]
    found = stat.of_process(ranks[1].pid)
    assert found
    asleep = found._replace(state="S")
    seen = {ranks[0].pid: asleep, ranks[1].pid: asleep._replace(state="D")}
    monkeypatch.setattr(stat, "of_process", seen.__getitem__)
    assert hung(ranks) == {ranks[1].pid: STILL}
    monkeypatch.setattr(stat, "state", lambda pid, _: seen[pid].state)
    assert hung(ranks) == {ranks[1].pid: "its process is in uninterruptible sleep"}


@pytest.mark.parametrize("seen", [True, False])
def test_no_rank_is_blamed_while_another_cannot_be_seen(
    started: Started, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """py-spy fails for one rank, which can be the one that all wait for."""
    waits, sleeps = (started("print('ready'); input()", stdin=subprocess.PIPE).pid for _ in "ab")

    def stacks(_: str, pid: int, *, gently: bool) -> list[Thread]:
        if pid == sleeps:
            return [Thread(pid, [Frame("load", "late.py", 3)])]
        if not seen:
            raise NoStack("the stack changed")
        return [Thread(pid, [Frame("execute", "/site-packages/tensorflow/eager.py", 3)])]

    monkeypatch.setattr(hang, "py_spy_executable", lambda: "py-spy")
    monkeypatch.setattr(hang, "stacks", stacks)
    assert list(hung([Rank(waits, 1.0), Rank(sleeps, 1.0)])) == [sleeps] * seen


@needs_py_spy
def test_the_rank_that_does_not_wait_for_gradients_hangs(standing) -> None:
    waits = standing("train.py", "execute()")
    sleeps, other = (
        standing("late.py", "print('ready', flush=True) or time.sleep(600)") for _ in "ab"
    )
    assert hung([waits, sleeps]) == {
        sleeps.pid: "its Python code has made no progress for 10 s at late.py:3 (<module>), and "
        "does not wait for gradients as the other ranks do"
    }
    # PyTorch's threads rest where there is nothing to send
    resting = [replace(one, used=0.0, cycles=False) for one in (waits, sleeps)]
    assert hung(resting) == hung([waits, sleeps])
    assert hung([replace(one, cycles=True) for one in resting]) == {}
    # nor where another of a rank's threads works
    busy = replace(resting[0], used=0.0, others=HUNG_SECONDS)
    assert hung([busy, replace(resting[1], used=1.0)]) == {}
    assert hung([sleeps, other]) == {}  # who of them the others wait for, nobody can say


@needs_py_spy
def test_the_rank_that_waits_for_its_loader_hangs(standing) -> None:
    """PyTorch's code is innermost there as it is where gradients are waited for."""
    waits = standing("train.py", "execute()")
    loads = standing("load.py", "from torch.utils.data.dataloader import execute\nexecute()")
    assert hung([waits, loads]) == {
        loads.pid: "its Python code has made no progress for 10 s at load.py:4 (<module>), and "
        "does not wait for gradients as the other ranks do"
    }


@needs_py_spy
def test_the_rank_that_stands_in_an_op_of_its_own_hangs(standing) -> None:
    """Its main thread waits in TensorFlow, which has called Python on another."""
    waits = standing("train.py", "execute()")
    within = standing(
        "op.py",
        "import threading\n"
        "there = threading.Event()\n"
        "def load():\n    there.set() or threading.Event().wait()\n"
        "threading.Thread(target=execute, args=(load,)).start()\n"
        "there.wait()\n"
        "execute()",
    )
    assert hung([waits, within]) == {
        within.pid: "an op of its step has been in Python code for 10 s at op.py:6 (load)"
    }
