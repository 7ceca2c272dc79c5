"""The interface of every planner to the rest of dltune."""

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
        """Yield a sentence for each thing that cannot be done, the field's path first
        (`name.field: ...`). `enforce` checks the fit to a machine or a job."""
        return iter(())

    def parameters(self) -> Sequence[click.Parameter] | None:
        """Return arguments and options of `dltune plan NAME` in addition to every planner's (-o,
        --into, --overwrite, --json, --emit). Arguments are files that the plan is made from.
        None: this planner's section is decided elsewhere."""
        return None

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[S]:
        """From the values of `parameters`; `existing`: the plan that the section will stand in.
        Raises UsageError when it cannot."""
        raise NotImplementedError

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
