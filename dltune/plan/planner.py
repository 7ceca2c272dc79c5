"""Interface of the planners to the rest of dltune, their registry, and helpers that they share.

A planner (`Planner`) decides one section of a plan. `Enforcement` is this section in force on one
job of `dltune run`; `Observer` is this section in a setting of `dltune bench`. dltune's core, its
systems and extensions of other packages register planners (`planner_names`, `load_planner`).

The sections of a plan are composed in one order (`composed`). Each section finds in `Run` the
decisions of the sections before it, and leaves there the facts that later sections need.
"""

from __future__ import annotations

import contextlib
import functools
import graphlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import click
import msgspec

from dltune import extensions
from dltune.base.errors import DltuneError, UsageError
from dltune.base.formatting import Table
from dltune.job import protocol
from dltune.job.failures import Sightings, hopeless, require_all_reported, why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import REPORT
from dltune.job.rank_layout import Shares
from dltune.job.record import Record
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan, Uniform
from dltune.views import Schedule, View

if TYPE_CHECKING:
    from dltune.schemas.profile import Profile, Step
    from dltune.simulate import engine


@dataclass
class Run:
    """One job that is to run under a plan.

    `environment`: the environment of dltune itself. `partial`: parts that do not fit are left out,
    and reported by `say`. `shares`: each rank's part of the cores. `pools`: the framework's own
    pools of threads in a process, by its part of the machine and its rank (gives None: they are
    left alone; is None: no section has a use for the plugin). `changes`: by what of itself the plan
    has changed the graphs of a process since its profile, in a few words (empty: by nothing), by
    pid."""

    plan: Plan
    machine: Machine
    command: Sequence[str]
    environment: Mapping[str, str]
    partial: bool
    say: Callable[[str], None]
    shares: Shares
    pools: Callable[[Machine, int | None], Uniform | None] | None = None
    changes: list[Callable[[int], str]] = field(default_factory=list)

    def needs_plugin(self) -> None:
        """Require the plugin, whatever becomes of the framework's pools."""
        if self.pools is None:
            self.pools = lambda *_: None

    def changed(self, pid: int) -> str:
        """Return the part of the plan that has changed this process's graphs; empty: none."""
        return next(filter(None, (change(pid) for change in reversed(self.changes))), "")


@dataclass(frozen=True)
class Outcome:
    """Result of a section in a job that has ended. `document`: for `dltune run --json`.
    `sentences`: for users."""

    document: Any
    sentences: Sequence[str]


class Enforcement:
    """Section of a plan in force on one job: its demands on a run.

    This class does nothing to a job; a planner's subclass overrides its actions.

    `inside`: it needs dltune in the job's Python. `announced`: sentences that are printed before
    the job starts. `recorded`: signatures of graphs of which it needs some executions recorded op
    by op. `orders_recording`: its own orders have executions of the plan's graphs recorded, for
    all sections.
    """

    inside = False
    announced: Sequence[str] = ()
    recorded: Sequence[str] = ()
    orders_recording = False

    def intent(self) -> Iterator[str | Table]:
        """Yield what would be enforced, for `dltune run --dry-run`."""
        return iter(())

    def command(self, given: Sequence[str]) -> Sequence[str]:
        """Return the command to start. Raises UsageError if it cannot be made."""
        return given

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """Return variables to set in addition to `base`, which has the variables of later sections.
        The job can write to `folder` while it runs. Raises DltuneError."""
        return {}

    def beside(self, pid: int) -> contextlib.AbstractContextManager[None]:
        """Return the context that accompanies the job, whose first process is `pid`."""
        return contextlib.nullcontext()

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        """Return the reply to an interpreter of the job that starts. Raises UsageError when the
        plan is for another job."""
        return {}

    def greet(self, process: Process) -> Sequence[str]:
        """Return orders for a plugin that has just connected, after its cores and pools."""
        return ()

    def look(self, job: Job) -> None:
        """Poll the job, a few times a second. Raises DltuneError."""

    def hear(self, job: Job, event: Event) -> None:
        """Handle a message of the job. Raises DltuneError when the section cannot be in force."""

    def ended(self, exit_code: int) -> Outcome | None:
        """Return the outcome once the job has ended. Raises DltuneError when the section was not in
        force in it."""
        return None

    def cause(self) -> str | None:
        """Return why the job failed, if this section knows."""
        return None


class Observer:
    """Section of a plan in a benchmark: its orders to the job, and its measurements there.

    This class observes nothing and orders nothing; a planner's subclass overrides its actions.

    `records_ops`: it needs the times of single ops, so the job records them in every setting.
    """

    records_ops = False

    def require(self, python: protocol.Python) -> None:
        """Check an interpreter of the job that starts. Raises UsageError if the job is not the one
        that the section is for."""

    def lines(self) -> list[str]:
        """Return orders for every process of the job."""
        return []

    def hear(self, record: Record, execution: protocol.Execution) -> None:
        """Receive an execution of a step."""

    def taken(self) -> tuple[float, ...]:
        """Return the efficiencies of the executions since the last call, each 1 at most."""
        return ()

    def faults(self, records: Iterable[Record]) -> Iterator[str]:
        """Yield sentences on what of the section is not in force in the job."""
        return iter(())


S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True)
class Decision(Generic[S]):
    """A planner's decision, and its description for users.

    `machine`: the machine planned for. `profile`: the profile it was decided from; None: it holds
    for any graph. `choice`: the decision in a few words. `remarks`: sentences on its basis.
    `shown`: the output on stdout. `explanation`: more lines on request. `summary`: for
    `--json`; the section itself when None. `formats`: the section in other programs' formats, by
    the name that `--emit` takes; each can raise UsageError.
    """

    section: S
    machine: Machine
    profile: Profile | None = None
    choice: str = ""
    remarks: Sequence[str] = ()
    shown: View = field(default_factory=View)
    explanation: Sequence[str] = ()
    summary: Mapping[str, Any] | None = None
    formats: Mapping[str, Callable[[], str]] = field(default_factory=dict)


class Planner(Generic[S]):
    """One planner. The defaults here fit a section that has no effect and needs nothing; a planner
    overrides the methods for its effects.

    `name`: name of its section and of its command. `summary`: a line for `dltune plan --help`.
    `section`: the struct in the plan. `after`: planners whose sections take effect
    before this one's where a plan has both; `before`: planners whose sections take effect after
    this one's. `tables`: tables of the section; `show --csv` prints the first that has rows.
    `starts_disabled`: the section starts the job with DLTUNE_DISABLE=1, too. `formats`: choices
    of `--emit`. `example`: a command line for the help; empty: it is made from the arguments.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    section: type[S]
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = ()
    starts_disabled: ClassVar[bool] = False
    formats: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = ""

    def faults(self, section: S, plan: Plan) -> Iterator[str]:
        """Yield a sentence for each thing in which the section does not fit this plan, the field's
        path first (`name.field: ...`). The section itself is checked before (`struct_faults`);
        `enforce` checks the fit to a machine or a job."""
        return iter(())

    def parameters(self) -> Sequence[click.Parameter] | None:
        """Return arguments and options of `dltune plan NAME` in addition to every planner's (-o,
        --into, --overwrite, --json, --emit). Arguments are files that the plan is made from.
        None: this planner's section is decided elsewhere."""
        return None

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[S]:
        """Decide a section from the values of `parameters`. `existing`: the plan that will contain
        it. Raises UsageError when that is impossible."""
        raise UsageError(
            f"dltune plan cannot make a {self.name!r} section",
            remedy=f"use this command: {self.example}" if self.example else None,
        )

    def changes_graphs(self, section: S) -> bool:
        """Return True if a job can have other graphs under this section than without it."""
        return False

    def names_ops(self, section: S) -> bool:
        """Return True if this section names single ops, which occur only in the graphs that they
        were planned for."""
        return False

    def places_threads(self, section: S) -> bool:
        """Return True if this section decides the number of threads and where they run."""
        return False

    def difference(self, before: S | None, after: S | None, *, graphs: bool) -> str:
        """Describe how a job under `after` differs from a job under `before`, as "with x=1 and
        without y=2"; empty: alike. `graphs`: only differences that change its steps' graphs."""
        return ""

    def enforce(self, section: S, run: Run) -> Enforcement:
        """Return the enforcement of this section on one job of `dltune run`. Raises UsageError when
        it does not fit, unless `run.partial` allows that."""
        raise UsageError(
            f"the plan's section {self.name!r} cannot be enforced",
            remedy="make a plan without this section",
        )

    def apply(self, section: S, plan: Plan, machine: Machine) -> Callable[[], None]:
        """Return the action of `dltune.apply` in a process that already runs. Raises UsageError if
        that is not possible."""
        raise UsageError(
            f"the plan's section {self.name!r} can take effect only when the job starts",
            remedy="start the job with dltune run --plan PLAN -- CMD",
        )

    def timelines(
        self, section: S, profile: Profile, step: Step
    ) -> Iterator[tuple[str, engine.Timeline]]:
        """Yield simulated executions of a step that the section predicts, each with its title.
        Raises DltuneError if the simulator cannot be built."""
        return iter(())

    def relief(self, profile: Profile) -> str | None:
        """Return how this planner can help a job that ran out of memory, a sentence."""
        return None

    def observer(self, section: S, *, in_force: bool) -> Observer | None:
        """Return the section's observer for one setting of `dltune bench`, which is the plan itself
        if `in_force`; None: bench does not measure the section."""
        return None

    def choice(self, section: S) -> str:
        """Return the decision in a few words, for a benchmark's strategy; empty: it has none."""
        return ""

    def show(self, section: S, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        """Return the section for users; `beside`: documents on the results of this plan."""
        return View()

    def schedule(self, section: S, plan: Plan, beside: Sequence[msgspec.Struct]) -> Schedule | None:
        """Return the simulated schedule of each device under the section; None: there is none.
        `beside`: documents from which the plan was possibly made. Raises DltuneError when it cannot
        be computed."""
        return None


# Registry of the planners


def planner_names() -> tuple[str, ...]:
    """Return the names of all planners, dltune's own first."""
    return extensions.names("planners")


@functools.cache
def load_planner(name: str) -> Planner[Any]:
    """Return the planner `name`. Raises UsageError if there is none, or if it cannot be loaded."""
    target = extensions.find("planners", name)
    if target is None:
        broken = "; ".join(extensions.failures().values())
        raise UsageError(
            f"the system or package with the planner {name!r} is not installed"
            + (f" ({broken})" if broken else ""),
            remedy=f"install it, or use one of {', '.join(planner_names())}",
        )
    where = f"the planner {name!r} ({target})"
    try:
        loaded = extensions.load(target)
    except Exception as error:  # importing another package can raise anything
        raise UsageError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}",
            remedy="repair or uninstall the package that provides it",
        ) from error
    whole = all(hasattr(loaded, part) for part in ("name", "summary", "section"))
    if not isinstance(loaded, Planner) or not whole or loaded.name != name:
        raise UsageError(
            f"{where} is not a Planner with this name, a summary and a section",
            remedy="report this to the authors of the package that provides it",
        )
    return loaded


def composed(sections: Iterable[str]) -> list[str]:
    """Return the names of planners in the order in which their sections take effect on a job: each
    after the planners of its `Planner.after`, and before those of its `Planner.before`. Raises
    UsageError when two must come after each other."""
    chosen = sorted(sections)
    order = graphlib.TopologicalSorter[str]()
    for name in chosen:
        earlier = {
            *load_planner(name).after,
            *(o for o in chosen if name in load_planner(o).before),
        }
        order.add(name, *sorted(earlier.intersection(chosen)))
    try:
        return list(order.static_order())
    except graphlib.CycleError as error:
        circle = ", ".join(error.args[1][1:])
        raise UsageError(
            f"the planners {circle} cannot be ordered: each must come after the other",
            remedy="report this to the authors of the packages that provide them",
        ) from None


# Helpers of planners: attachment of the plugin, and durations on the command line

# between two checks of a job before its first step
LOOK_SECONDS = 2.0


class Attachment:
    """Check that the plugin has reached a job that needs it, and the reason if it has not.

    `seen`: the processes of the job that have sent a message.
    """

    def __init__(self) -> None:
        self.seen = Sightings()
        self._processes: list[Process] = []
        self._looked = time.monotonic()

    def greet(self, process: Process) -> Record:
        """Return a new record for a process whose plugin has just connected."""
        self._processes.append(process)
        record = self.seen.records[process.pid] = Record(process.hello)
        return record

    def look(self, job: Job) -> None:
        """Check that a job in which the plan is not yet in force can still receive it. Raises
        DltuneError when the job runs without the plan."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS or job.exit_code is not None:
            return
        self._looked = now
        if error := hopeless(self.seen):
            raise error
        require_all_reported(job.pid, *self.seen.reported())
        for process in self._processes:
            process.order([REPORT])

    def hear(self, event: Event) -> None:
        """Raises DltuneError when the plugin could not be built or loaded: the job would run plain,
        and that must not pass for a run with the plan."""
        self.seen.add(event.message)
        if isinstance(event.message, protocol.Failed):
            raise why_no_step(self.seen, None)

    def why_nothing(self, exit_code: int, unmet: str) -> DltuneError:
        """Return why the plan came into force nowhere; `unmet` is the reason if the job ran other
        graphs to its end."""
        if exit_code == 0 and any(record.graphs for record in self.seen.records.values()):
            return UsageError(unmet, remedy="profile the job as it is now and plan again")
        return why_no_step(self.seen, exit_code)
