"""An extension in a package of its own: how OpenMP's threads wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import Table, columns
from dltune.extensions import Command, DocumentKind, Extension
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.frameworks.capabilities import Framework
from dltune.plan.planner import Decision, Enforcement, Outcome, Planner, Run
from dltune.plan.settings.setting import Means, Setting
from dltune.schemas.diagnosis import Finding
from dltune.schemas.plan import Plan
from dltune.system import topology
from dltune.views import Context, Headline, Section, View, on_page

POLICIES = ("active", "passive")


class WaitingPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policy: str


class Waiting(Enforcement):
    def __init__(self, section: WaitingPlan) -> None:
        self.section = section

    def intent(self) -> Iterator[str]:
        yield f"OpenMP's threads wait: {self.section.policy}"

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        return {"OMP_WAIT_POLICY": self.section.policy}

    def ended(self, exit_code: int) -> Outcome:
        return Outcome({"policy": self.section.policy}, [f"waited: {self.section.policy}"])


class WaitingPlanner(Planner[WaitingPlan]):
    name = "waiting"
    summary = "How OpenMP's threads wait."
    section = WaitingPlan
    after = ("threads",)
    formats = ("env",)

    def faults(self, section: WaitingPlan, plan: Plan) -> Iterator[str]:
        if section.policy not in POLICIES:
            yield f"waiting.policy must be one of {POLICIES}, got {section.policy!r}"

    def parameters(self) -> Sequence[click.Parameter]:
        return [click.Option(["--policy"], type=click.Choice(POLICIES), default="passive")]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[WaitingPlan]:
        """Threads that sleep leave their cores to others."""
        section = WaitingPlan(parameters["policy"])
        return Decision(
            section,
            topology.local(),
            choice=section.policy,
            shown=self._shown(section),
            formats={"env": lambda: f"export OMP_WAIT_POLICY={section.policy}\n"},
        )

    def enforce(self, section: WaitingPlan, run: Run) -> Enforcement:
        return Waiting(section)

    def apply(self, section: WaitingPlan, plan: Plan, machine: object) -> Any:
        raise UsageError("OpenMP reads its policy when it is loaded", remedy="use dltune run")

    def show(self, section: WaitingPlan, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        return self._shown(section)

    def _shown(self, section: WaitingPlan) -> View:
        table = Table("how OpenMP's threads wait", columns("policy"), [(section.policy,)])
        headline = Headline(1, f"OpenMP's threads are planned to wait {section.policy}ly.")
        return View([Section("policy", "Waiting", [table])], [headline])


PLANNER = WaitingPlanner()


@click.command("waiting")
def command() -> None:
    """Print the policies."""
    click.echo("\n".join(POLICIES))


class Thread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    seconds: float


class Waits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long threads waited."""

    schema: str
    threads: Annotated[tuple[Thread, ...], documents.FILLED]


load = documents.reader(Waits, "waiting.waits/1")


def view(waits: Waits, _: Context) -> View:
    rows = [(thread.name, f"{thread.seconds:.2f}") for thread in waits.threads]
    table = Table("waits of threads", columns("thread", ">seconds"), rows)
    body = [*on_page("Only a page has this sentence."), table]
    return View([Section("threads", "Threads", body)], [Headline(2, "A thread waits.")], "Waits")


class WaitProbe:
    """Pretends to have observed one thread of the job."""

    def __init__(self, root: int) -> None:
        self.root = root

    def end(self, framework: Framework) -> Waits:
        return Waits("waiting.waits/1", (Thread(f"thread of {self.root}", 2.0),))


@rule(
    "waiting-thread",
    "cores",
    summary="A thread waits.",
    fix="Let it sleep.",
)
def find_waits(evidence: Evidence) -> Iterator[Finding]:
    waits = evidence.report(Waits)
    for thread in waits.threads if waits else ():
        yield Finding(
            title=f"{thread.name} waits", evidence=f"for {thread.seconds:.2f} s", fix="let it sleep"
        )


NICENESS = Setting(
    name="niceness",
    what="Set the niceness of the job.",
    helps="Jobs that share their cores.",
    meanings={"low": "run after others"},
    kind="exact",
    source="nice(1)",
    ways=lambda _: {"low": Means(environment={"NICENESS": "10"})},
)


EXTENSION = Extension(
    name="waiting",
    commands={
        "waiting": Command("Decide", "Print how threads can wait.", "dltune_waiting:command")
    },
    planners={"waiting": "dltune_waiting:PLANNER"},
    documents={
        "waiting.waits": DocumentKind(
            "dltune_waiting:load", ("threads",), "dltune_waiting:view", is_evidence=True
        )
    },
    rules=("dltune_waiting",),
    probes=("dltune_waiting:WaitProbe",),
    settings=("dltune_waiting:NICENESS",),
)
