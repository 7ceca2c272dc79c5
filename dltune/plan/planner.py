"""What every planner is to the rest of dltune: the doors of its room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import click
import msgspec

from dltune.base.errors import UsageError
from dltune.plan.enforcement import Enforcement, Run
from dltune.plan.observer import Observer
from dltune.schemas.plan import Plan
from dltune.views import Schedule, View

if TYPE_CHECKING:
    from dltune.schemas.machine import Machine
    from dltune.schemas.profile import Profile, Step
    from dltune.simulate import engine

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True)
class Decision(Generic[S]):
    """What a planner has decided, and what a person is told of it.

    `machine`: the one planned for. `profile`: what it was decided from; None: it holds for any
    graph. `choice`: the decision in a few words. `remarks`: sentences on what it rests on.
    `shown`: what stdout gets. `explanation`: lines that were asked for besides. `summary`: for
    `--json`; the section itself when None. `formats`: what the section is in other programs'
    formats, by the name that `--emit` takes; each may raise UsageError.
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
    """One planner. What is said here of a section holds for one without any effect, which needs
    nothing; a planner overrides what it does.

    `name`: of its section and of its command. `summary`: a line for `dltune plan --help`.
    `section`: the struct that stands in the plan. `after`: planners whose sections take effect
    before this one's where a plan has both; `before`: planners whose sections take effect after
    this one's. `tables`: tables of the section; `show --csv` prints the first that has rows.
    `starts_disabled`: the section starts the job with DLTUNE_DISABLE=1, too. `formats`: what
    `--emit` offers. `example`: a command line for the help; empty: one is made of the arguments.
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
        """All that cannot be done, one sentence each, the field's path first (`name.field: ...`).
        Whether it fits a machine or a job is for `enforce`."""
        return iter(())

    def parameters(self) -> Sequence[click.Parameter] | None:
        """Arguments and options of `dltune plan NAME` besides those of every planner (-o, --into,
        --overwrite, --json, --emit). Arguments are files that the plan is made from. None: this
        planner's section is decided elsewhere."""
        return None

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[S]:
        """From the values of `parameters`; `existing`: the plan that the section will stand in.
        Raises UsageError when it cannot."""
        raise NotImplementedError

    def changes_graphs(self, section: S) -> bool:
        """Whether a job under this section may have other graphs than without."""
        return False

    def names_ops(self, section: S) -> bool:
        """Whether this section speaks of single ops, which are met in the graphs they were planned
        for alone."""
        return False

    def places_threads(self, section: S) -> bool:
        """Whether this section decides how many threads there are and where they run."""
        return False

    def difference(self, before: S | None, after: S | None, *, graphs: bool) -> str:
        """How a job under `after` runs unlike one under `before`, as "with x=1 and without y=2";
        empty: alike. `graphs`: as far as it makes other graphs of its steps."""
        return ""

    def enforce(self, section: S, run: Run) -> Enforcement:
        """This section in force on one job of `dltune run`. Raises UsageError when it does not fit,
        where `run.partial` does not allow that."""
        raise UsageError(
            f"the plan's section {self.name!r} cannot be enforced",
            remedy="make a plan without this section",
        )

    def apply(self, section: S, plan: Plan, machine: Machine) -> Callable[[], None]:
        """What `dltune.apply` does in a process that runs already. Raises UsageError when nothing
        of the kind is possible."""
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
        """The section for people; `beside`: documents on what came of this plan."""
        return View()

    def schedule(self, section: S, plan: Plan, beside: Sequence[msgspec.Struct]) -> Schedule | None:
        """What each device would do when under the section, simulated; None: nothing of the kind.
        `beside`: documents that the plan may have been made from. Raises DltuneError when it cannot
        be told."""
        return None
