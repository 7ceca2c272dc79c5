"""Horovod's ranks under a plan: the orders that each receives at its start, and their end.

Threads of tf.data begin only when a job reads its data; `InputThreads` moves them later.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.base.formatting import counted
from dltune.job import protocol
from dltune.job.launch import Event, Job
from dltune.job.rank_layout import Rank, Shares, are_unheard, local_rank, world
from dltune.job.subprocesses import tells_of_another
from dltune.plan.planner import Enforcement, Outcome, Run
from dltune.system.proc import stat
from dltune.system.proc.process import mappings
from dltune.systems.ranks.allreduce.section import AllreducePlan, Controller
from dltune.systems.ranks.allreduce.show import (
    Heard,
    RankOutcome,
    intent,
    outcome,
    sentences,
    settings,
)
from dltune.systems.ranks.horovod.preload import interposer
from dltune.systems.ranks.horovod.preload.interposer import Counts, read
from dltune.systems.ranks.horovod.watch import libraries
from dltune.systems.ranks.horovod.watch.hang import Hangs
from dltune.systems.ranks.horovod.watch.libraries import Memory
from dltune.systems.ranks.horovod.watch.ranks import Ending, Roles


@dataclass
class RankExit:
    """The end of a rank. `at`: monotonic seconds. `error`: the exception that the rank itself
    reported; `code`: exit code, or the signal as a negative number, None when the kernel did not
    report it."""

    rank: int
    pid: int
    at: float
    error: str | None = None
    code: int | None = None

    @property
    def followed(self) -> bool:
        """True if it failed because another rank was gone, or was ended by the launcher."""
        if self.error is not None:
            return tells_of_another(self.error)
        return self.ended

    @property
    def ended(self) -> bool:
        """True if somebody asked it to end, and it did."""
        return self.error is None and self.code in (-signal.SIGTERM, -signal.SIGINT)

    @property
    def reason(self) -> str:
        if self.error is not None:
            return self.error
        if self.code is None:
            return "it ended, exit code unknown"
        if self.code < 0:
            return f"it was stopped by {signal.Signals(-self.code).name}"
        return f"it ended with exit code {self.code}"


def in_words(exits: list[RankExit], name: Callable[[RankExit], str]) -> str | None:
    """Return one sentence on the first rank of a job to fail, with its reason, and on the ranks
    that failed because of it; None when none failed."""
    failed = [one for one in exits if one.error is not None or one.code != 0]
    if not failed:
        return None
    if len(failed) > 1 and all(one.ended for one in failed):  # by the user, or by the launcher
        signals = sorted({signal.Signals(-(one.code or 0)).name for one in failed})
        names = sorted(failed, key=lambda one: one.rank)
        return f"{', '.join(map(name, names))} were stopped by {' and '.join(signals)}"
    first = min(failed, key=lambda one: (one.followed, one.at))
    text = f"{name(first)} failed first: {first.reason}"
    others = sorted((one for one in exits if one is not first), key=lambda one: one.rank)
    if others:
        text += f"; {', '.join(map(name, others))} followed"
    return text


# samples of a thread that ran in each of them, after which it is left where it is
PATIENCE = 30


class InputThreads:
    """The threads of tf.data of one process, which begin when a job reads its data, and which are
    put onto the cores planned for them. `moved`: how many so far; `unseen`: why they cannot be
    identified."""

    def __init__(self, pid: int, cpus: Collection[int]) -> None:
        self.moved = 0
        self.unseen: str | None = None
        self._pid = pid
        self._cpus = cpus
        self._looks: dict[int, int] = {}
        self._roles: Roles | None = None

    def move(self) -> None:
        """Those that have begun since the last time."""
        if self.unseen:
            return
        try:
            fresh = [t for t in stat.threads(self._pid) if self._looks.get(t, 0) < PATIENCE]
            if not fresh:
                return
            if self._roles is None:
                mapped = mappings(self._pid)
                found = libraries.find_horovod(self._pid, mapped)
                if found is None:
                    self.unseen = "Horovod's library was not found in the process"
                    return
                self._roles = Roles(self._pid, mapped, found)
            with Memory(self._pid) as memory:
                for thread in fresh:
                    self._look(self._roles, memory, thread)
        except PermissionError as error:
            self.unseen = f"this user may not read the process's memory ({error.strerror})"
        except OSError:
            return  # it has ended

    def _look(self, roles: Roles, memory: Memory, thread: int) -> None:
        name = stat.thread_name(self._pid, thread)
        if name is None:
            return
        told = roles.tell(memory, thread, name)
        self._looks[thread] = PATIENCE if told else self._looks.get(thread, 0) + 1
        if told and told.role == "input":
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, self._cpus)
                self.moved += 1


# between two looks for new threads of an input pipeline
LOOK_SECONDS = 0.5
_OF_BOOTSTRAP = (
    protocol.Python,
    protocol.Horovod,
    protocol.NoHorovod,
    protocol.Reduction,
    protocol.RankFailed,
)


@dataclass
class _Rank:
    """The process that is a rank. `error`: the exception that ended it, as the process reported
    it."""

    pid: int
    where: Rank
    ending: Ending
    exit: RankExit | None = None
    init: protocol.Horovod | None = None
    devices: list[protocol.Device] = field(default_factory=list)
    reductions: list[protocol.Reduction] = field(default_factory=list)
    input: InputThreads | None = None


class EnforcedAllreduce(Enforcement):
    """The section on Horovod in the ranks of one job.

    With `partial`, the part that still applies of a plan for other ranks; `dropped` lists the parts
    that do not.
    """

    inside = True

    def __init__(self, section: AllreducePlan, run: Run) -> None:
        self.section = section
        self.dropped: list[str] = []
        self._run = run
        self._others = False  # the job has other ranks than the plan
        self._ranks: dict[int, _Rank] = {}
        self._without: dict[int, str] = {}
        self._looked = 0.0
        self._hangs = Hangs(run.say)
        self._counts: Path | None = None
        planned = [cores.compute for cores in section.cores] if section.cores else None
        run.shares = Shares(run.machine, planned)
        run.changes.append(lambda pid: "with its bins" if self.binned(pid) else "")
        if pools := section.threads:
            run.pools = lambda *_: pools

    def intent(self) -> Iterator[str]:
        return (f"Horovod: {line}" for line in intent(self.section, self._run.machine))

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """Return the variables that the launcher and its ranks need from their start.

        Raises DltuneError when the library for sleeping background threads cannot be built.
        """
        if self.section.sleeps is None:
            return {}
        built = interposer.build(
            _mpirun(self._run.command),
            lambda: self._run.say("building the library for sleeping background threads, once"),
        )
        self._counts = folder
        return interposer.variables(built, self.section.sleeps, base, folder)

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        """Raises UsageError when the plan is for other ranks than the job's."""
        local, where = local_rank(python.environment), world(python.environment)
        if local is None or where.size == 1:
            return {}
        self._require_ranks(where.size, local)
        self._require_controller(_controller(python.environment))
        self._leave_to_all(python.environment)
        # a plan on threads divides the node between its ranks where this section does not
        reply = self._run.shares.answer(python) if self.section.cores is not None else {}
        return {**reply, "horovod": self._orders(local)}

    def binned(self, pid: int) -> bool:
        """True if the plan's bins have changed the graph of a process's step."""
        rank = self._ranks.get(pid)
        return rank is not None and any(call.bins is not None for call in rank.reductions)

    def hear(self, job: Job, event: Event) -> None:
        """Raises UsageError when Horovod itself was started otherwise than planned."""
        message = event.message
        if event.process:
            pid = event.process.pid
        elif isinstance(message, _OF_BOOTSTRAP):
            pid = message.pid
        else:
            return
        if isinstance(message, protocol.Python):
            self._meet(job, message)
        elif isinstance(message, protocol.NoHorovod):
            self._without.setdefault(pid, message.reason)
        else:
            if pid not in self._ranks and isinstance(message, protocol.Horovod):
                self._require_ranks(message.size, Rank(0, message.local_size, ()))
                self._take_over(job, message)
            if pid in self._ranks:
                self._hear_rank(self._ranks[pid], message)

    def look(self, job: Job) -> None:
        """For new threads of input pipelines, and for ranks that hang."""
        self._hangs.look()
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            for rank in self._ranks.values():
                if rank.input and rank.exit is None:
                    rank.input.move()

    def ended(self, exit_code: int) -> Outcome:
        ranks = sorted(self._ranks.values(), key=lambda rank: rank.where.rank)
        for rank in ranks:
            rank.ending.close()
        every = read(self._counts) if self._counts else []
        by_pid = {one.pid: one for one in reversed(every)}  # the first of several threads
        found = [
            self._outcome(rank, rank.init, by_pid.get(rank.pid)) for rank in ranks if rank.init
        ]
        if not found:
            raise self._why_nothing(exit_code)
        return Outcome(found, [s for one in found for s in sentences(one)])

    def cause(self) -> str | None:
        """Return the rank that hung until the end, or else failed first, and why."""
        if self._hangs.over:
            return "; ".join(self._hangs.over)
        ended = [rank.exit for rank in self._ranks.values() if rank.exit]
        return in_words(ended, lambda one: f"rank {one.rank} (pid {one.pid})")

    def _orders(self, local: Rank) -> dict[str, object]:
        orders: dict[str, object] = {
            "settings": settings(self.section),
            "sleeps": self.section.sleeps is not None,
        }
        if self.section.cores is not None:
            mine = self.section.cores[local.rank]
            orders["cores"] = {
                "background": self._cpus(mine.background),
                "helpers": self._cpus(mine.helpers),
                "first": _sleeps(self.section),
            }
        orders["orders"] = [
            {
                "shapes": order.shapes,
                "dtypes": order.dtypes,
                "bins": [(bin_.tensors, bin_.elements) for bin_ in order.bins],
            }
            for order in self.section.orders or ()
        ]
        return orders

    def _cpus(self, cores: Sequence[int]) -> list[int]:
        return [cpu for core in cores for cpu in self._run.machine.cores[core].cpus]

    def _meet(self, job: Job, python: protocol.Python) -> None:
        local, where = local_rank(python.environment), world(python.environment)
        if local is None or where.size == 1:
            return
        if any(rank.where == where for rank in self._ranks.values()):
            return  # processes that a rank starts have its variables too
        self._begin(job, python.pid, where)

    def _begin(self, job: Job, pid: int, where: Rank) -> None:
        with contextlib.suppress(OSError):  # it has ended already
            rank = _Rank(pid, where, Ending(pid))
            job.watch(rank.ending.fileno(), lambda: self._ended(rank))
            self._ranks[pid] = rank

    def _take_over(self, job: Job, init: protocol.Horovod) -> None:
        """Replace a rank whose first Python was another process, such as that of `conda run`."""
        before = [one for one in self._ranks.values() if one.where.rank == init.rank]
        if before and before[0].init is None:
            del self._ranks[before[0].pid]
            self._begin(job, init.pid, before[0].where)

    def _hear_rank(self, rank: _Rank, message: protocol.Message) -> None:
        if isinstance(message, protocol.Horovod):
            self._require_ranks(message.size, Rank(message.local_rank, message.local_size, ()))
            self._require_controller(message.controller)
            rank.init = message
            self._hangs.add(message.rank, message.pid, tuple(message.threads))
            cores = self.section.cores[message.local_rank] if self.section.cores else None
            if cores and set(cores.input) != set(cores.compute):
                rank.input = InputThreads(rank.pid, self._cpus(cores.input))
            self._run.say(f"rank {message.rank}: Horovod started under the plan")
        elif isinstance(message, protocol.Reduction):
            rank.reductions.append(message)
        elif isinstance(message, protocol.Device):
            rank.devices.append(message)
        elif isinstance(message, protocol.RankFailed):
            rank.exit = RankExit(rank.where.rank, rank.pid, message.at, message.error)

    def _ended(self, rank: _Rank) -> None:
        rank.ending.ended()
        self._hangs.ended()
        if rank.exit is None:
            rank.exit = RankExit(rank.where.rank, rank.pid, time.monotonic())
        rank.exit.code = rank.ending.code

    def _outcome(
        self, rank: _Rank, init: protocol.Horovod, its_counts: Counts | None
    ) -> RankOutcome:
        asked = [d for d in rank.devices if d.asked_intra or d.asked_inter] or rank.devices
        heard = Heard(init, rank.reductions, asked[0] if asked else None, counts=its_counts)
        if rank.input:
            heard.moved, heard.unmoved = rank.input.moved, rank.input.unseen
        return outcome(self.section, self._run.machine, self.dropped, heard)

    def _require_ranks(self, size: int, local: Rank) -> None:
        section = self.section
        if self._others or (size, local.size) == (section.ranks, section.local):
            return
        planned = counted(section.ranks, "rank")
        told = f"the plan is for {planned}, {section.local} of them on this node"
        if not self._run.partial:
            raise UsageError(
                f"{told}; the job runs {counted(size, 'rank')}, {local.size} of them on this node",
                remedy="plan for the job's ranks, or pass --partial to apply what fits",
            )
        self._others = True
        if section.cores is not None and local.size != section.local:
            self.section = msgspec.structs.replace(section, cores=None)
            self._run.shares = Shares(self._run.machine)
            told += f": its cores do not fit {counted(local.size, 'rank')}"
        self.dropped.append(told)

    def _leave_to_all(self, told: Mapping[str, str]) -> None:
        """Drop the parts that all ranks must apply alike if some ranks are not controlled: ranks
        that apply them wait for ever for those that do not, whose collectives differ."""
        section = self.section
        parts = {"bins": section.orders, "sleeps": section.sleeps, "knobs": section.knobs}
        alike = [name for name, planned in parts.items() if planned]
        if alike and are_unheard(told, self._run.environment):
            self.section = msgspec.structs.replace(section, orders=None, sleeps=None, knobs=None)
            self.dropped.append(
                f"{', '.join(alike)}: this dltune does not control the ranks on other nodes; start "
                "dltune in each rank: mpirun ... dltune run ... python"
            )

    def _require_controller(self, controller: Controller | None) -> None:
        section = self.section
        if controller in (None, section.controller):
            return
        told = (
            f"the plan is for Horovod over {section.controller}, the job runs it over {controller}"
        )
        if not self._run.partial:
            raise UsageError(
                told,
                remedy=f"start the job with horovodrun --{section.controller}, plan again, or pass "
                "--partial to apply what fits",
            )
        self.section = msgspec.structs.replace(
            section, controller=controller, sleeps=None, yield_when_idle=False
        )
        self.dropped.append(told)

    def _why_nothing(self, exit_code: int) -> DltuneError:
        if cause := self.cause():
            message = f"no rank reached hvd.init(): {cause}"
        elif self._without:
            pid, reason = next(iter(self._without.items()))
            message = f"Horovod could not be imported (pid {pid}): {reason}"
        else:
            message = "no process of the job called hvd.init(): the plan changed nothing"
        if self._without:
            remedy = (
                "build Horovod for the job's TensorFlow (`make horovod` of dltune's repository)"
            )
        else:
            remedy = "use this plan for a Horovod job only"
        if exit_code:
            return JobFailed(
                f"{message} (the job ended with exit code {exit_code})", exit_code, remedy=remedy
            )
        return UsageError(message, remedy=remedy)


def _sleeps(section: AllreducePlan) -> bool:
    """True if background threads sleep while they wait. A thread that spins, yielding or not, would
    take the more of its core the sooner it gets the core back."""
    if section.controller == "gloo":
        return True
    nbcs = section.sleeps is not None and section.sleeps.between_tests is not None
    return nbcs and not section.yield_when_idle


def _controller(environ: Mapping[str, str]) -> Controller | None:
    """Return the controller that the launcher names to a rank; None when it names none."""
    told = environ.get("HOROVOD_CONTROLLER", "").lower()
    if told in ("mpi", "gloo"):
        return "mpi" if told == "mpi" else "gloo"
    return "mpi" if "OMPI_COMM_WORLD_SIZE" in environ else None


def _mpirun(command: Sequence[str]) -> Path | None:
    """The program that starts the ranks, where it is known."""
    name = Path(command[0]).name
    if name.startswith("horovodrun"):
        found = shutil.which("mpirun")
    else:
        found = shutil.which(command[0]) if "mpi" in name or "orterun" in name else None
    return Path(found) if found else None
