"""Plans as a whole: read, made, composed of sections, and enforced on a job.

`load_plan` reads a plan with the planners of its sections; `merge_section` makes a plan or adds a
section to it.

A plan is enforced in two ways. `Composition` runs an unmodified job with the plan (`dltune run`)
and reports the outcome. `apply` is `dltune.apply`: it enforces the plan from inside a script,
without `dltune run` around it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from dltune import __version__
from dltune.base.documents import digest, now, refuse, struct_faults
from dltune.base.errors import UsageError
from dltune.base.formatting import Table, counted, visible
from dltune.job import protocol
from dltune.job.launch import Job, Process
from dltune.job.protocol import machine_lines, sampled_lines
from dltune.job.rank_layout import Shares, local_rank, rank_cores
from dltune.plan.planner import (
    Enforcement,
    Observer,
    Outcome,
    Run,
    composed,
    load_planner,
    planner_names,
)
from dltune.schemas.machine import Machine
from dltune.schemas.plan import SCHEMA, Plan, stored, typed
from dltune.schemas.profile import (
    LOCAL,
    Framework,
    Profile,
    job,
    task,
)
from dltune.system import topology

_WITHOUT = "install it, or remove this section from the plan"


def load_plan(path: Path, left: Callable[[str], None] | None = None) -> Plan:
    """Return the plan in a file. Raises UsageError, which lists every fault.

    `left`: called with each section whose planner is missing, which is then left out; without it,
    such a section is an error.
    """
    plan = stored(path)
    sections: dict[str, msgspec.Struct] = {}
    for name, content in plan.sections.items():
        try:
            kind = load_planner(name).section
        except UsageError as error:
            if left is None:
                where = f"{path}: sections.{visible(name)}"
                remedy = error.remedy if name in planner_names() else _WITHOUT
                raise UsageError(f"{where}: {error}", remedy=remedy) from None
            left(f"skipping section {name!r} of the plan: {error}")
            continue
        sections[name] = typed(content, name, kind, path)
    msgspec.structs.force_setattr(plan, "sections", sections)
    refuse(str(path), plan_faults(plan))
    return plan


def plan_faults(plan: Plan) -> list[str]:
    """Return a sentence for each thing that cannot be done in a plan, the field's path first.

    Callers that have a machine and a graph check whether the plan fits them.
    """
    return [
        f"sections.{fault}"
        for name, section in plan.sections.items()
        for fault in (*struct_faults(name, section), *load_planner(name).faults(section, plan))
    ]


def new_plan(
    machine: Machine,
    *,
    profile: str = "",
    framework: Framework | None = None,
    signatures: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
    sections: Mapping[str, Any] = MappingProxyType({}),
) -> Plan:
    """Return a plan for this machine, made now, of these sections."""
    return Plan(
        schema=SCHEMA,
        created=now(),
        dltune=__version__,
        profile=profile,
        machine=machine.fingerprint,
        machine_name=machine.name,
        cores=len(machine.cores),
        framework=framework,
        signatures=signatures,
        tasks=tasks,
        sections={name: section for name, section in sections.items() if section is not None},
    )


def with_sections(plan: Plan, **sections: Any) -> Plan:
    """Return the plan with these sections in place of its sections of that name; None removes."""
    whole = {**plan.sections, **sections}
    kept = {name: section for name, section in whole.items() if section is not None}
    return msgspec.structs.replace(plan, sections=kept)


def merge_section(
    existing: Plan | None,
    name: str,
    section: msgspec.Struct,
    machine: Machine,
    profile: Profile | None = None,
    framework: Framework | None = None,
) -> Plan:
    """Return `existing` with this section of the planner `name`, or a new plan.

    The section was decided for `machine`, from `profile` where it is for certain graphs; the
    settings of the profile's job come into the plan with it. `framework`: the job's framework, if
    there is no profile that names it. Raises UsageError when `existing` is for another machine or
    other graphs, or has sections under which a job has other graphs than those that this section,
    or one that is there, was decided for."""
    if profile is None:
        made = new_plan(machine, framework=framework, sections={name: section})
    else:
        made = new_plan(
            machine,
            profile=digest(profile),
            framework=profile.framework,
            signatures=tuple(step.signature for step in profile.steps),
            tasks=_tasks(profile),
            sections={"settings": profile.under, name: section},
        )
    if existing is None:
        return made
    if existing.machine != machine.fingerprint:
        raise UsageError(
            f"the existing plan is for {existing.machine_name} with {existing.cores} cores, but "
            f"the new section is for {machine.name} with {len(machine.cores)} cores",
            remedy="write a separate plan with -o",
        )
    if existing.signatures and made.signatures and set(existing.signatures) != set(made.signatures):
        raise UsageError(
            "the existing plan was made for other graphs than those of this profile",
            remedy="make both sections from one profile, or write a separate plan with -o",
        )
    if profile is None:
        require_fitting(existing, name, section)
        made = msgspec.structs.replace(made, created=existing.created)
    else:
        _require_same_graphs(existing, made, name)
    sections = {**made.sections, **existing.sections, name: section}
    return msgspec.structs.replace(
        existing,
        created=made.created,
        profile=made.profile or existing.profile,
        framework=(profile and profile.framework) or existing.framework or framework,
        signatures=made.signatures or existing.signatures,
        tasks=made.tasks or existing.tasks,
        sections={name: sections[name] for name in composed(sections)},
    )


def _tasks(profile: Profile) -> tuple[str, ...]:
    """Return the tasks of a job with several; a framework calls a single task "localhost"."""
    tasks = dict.fromkeys(task(step.device) for step in profile.steps)
    return tuple(name for name in tasks if job(name) not in ("", LOCAL))


def _require_same_graphs(existing: Plan, made: Plan, own: str) -> None:
    """Raise UsageError unless the profile's job had the graphs of a job under `existing`."""
    if why := _differences(existing, made.sections, own, graphs=True):
        raise UsageError(
            f"the existing plan runs the job {why}, unlike the profiled job, so their graphs "
            "differ",
            remedy="profile the job with dltune profile --plan PLAN, then plan again",
        )


def describe_differences(existing: Plan, profile: Profile, own: str) -> str:
    """Describe in a few words how a job under `existing` runs unlike the profile's job, apart from
    the section of the planner `own`; empty: no difference."""
    return _differences(existing, {"settings": profile.under}, own, graphs=False)


def _differences(existing: Plan, before: Mapping[str, Any], own: str, *, graphs: bool) -> str:
    differences = (
        load_planner(name).difference(before.get(name), after, graphs=graphs)
        for name, after in existing.sections.items()
        if name != own
    )
    return " and ".join(filter(None, differences))


def require_fitting(existing: Plan, name: str, section: msgspec.Struct | None) -> None:
    """Raise UsageError when a job with this section of the planner `name`, or without such a
    section, has other graphs than the graphs whose ops a section of `existing` names."""
    why = load_planner(name).difference(existing.sections.get(name), section, graphs=True)
    if why and names_ops(existing):
        raise UsageError(
            f"the existing plan has entries for single ops, but a job {why} has other graphs",
            remedy="write a separate plan with -o, then profile the job with --plan",
        )


def observers(plan: Plan, *, in_force: bool) -> dict[str, Observer]:
    """Return the observers of the plan's sections in one setting of a benchmark, by section."""
    made = {
        name: load_planner(name).observer(section, in_force=in_force)
        for name, section in ordered_sections(plan)
    }
    return {name: observer for name, observer in made.items() if observer}


def names_ops(plan: Plan) -> bool:
    """Return True if a section names single ops, which occur only in the plan's graphs."""
    return any(load_planner(name).names_ops(section) for name, section in plan.sections.items())


def places_threads(plan: Plan) -> bool:
    """Return True if a section decides the number of threads and where they run."""
    return any(
        load_planner(name).places_threads(section) for name, section in plan.sections.items()
    )


def is_graph_independent(plan: Plan) -> bool:
    """Return True if it can change the graphs it was made for, and names no single ops, which
    would occur only in those graphs."""
    changes = (
        load_planner(name).changes_graphs(section) for name, section in plan.sections.items()
    )
    return any(changes) and not names_ops(plan)


def main_tables(plan: Plan) -> tuple[str, ...]:
    """Return the main tables of the plan's sections, as "threads.ops"."""
    return tuple(
        f"{name}.{table}"
        for name in planner_names()
        if name in plan.sections
        for table in load_planner(name).tables
    )


def starts_disabled(plan: Plan) -> bool:
    """Return whether a section starts the job with DLTUNE_DISABLE=1, too."""
    return any(load_planner(name).starts_disabled for name in plan.sections)


def require_machine(plan: Plan, machine: Machine) -> None:
    """Raise UsageError unless the plan was made for `machine`."""
    if plan.machine == machine.fingerprint:
        return
    here = f"{counted(len(machine.cores), 'core')} of {machine.name}"
    if machine.quota is not None:
        here += f" with a quota of {machine.quota:g} CPU{'s' * (machine.quota != 1)}"
    raise UsageError(
        f"the plan was made for {counted(plan.cores, 'core')} of {plan.machine_name} "
        f"(fingerprint {plan.machine}), but this machine has {here} "
        f"(fingerprint {machine.fingerprint})",
        remedy="make a plan for this machine, or pass --partial to enforce only what still applies",
    )


def require_sections(plan: Plan) -> None:
    """Raise UsageError when the plan has nothing to enforce."""
    if not plan.sections:
        raise UsageError("the plan has no section", remedy="make a plan with dltune plan PROFILE")


def ordered_sections(plan: Plan) -> list[tuple[str, Any]]:
    """Return the plan's sections by their planners' names, in the order in which they take
    effect."""
    return [(name, plan.sections[name]) for name in composed(plan.sections)]


# Enforcement of a plan on a job

LOOK_SECONDS = 0.5  # between two polls of a job that sends nothing


class Composition:
    """The sections of one plan in force on one job, in the order in which they take effect.

    It composes the sections, starts the job, and returns the outcome of each section.
    """

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        partial: bool,
        say: Callable[[str], None],
    ) -> None:
        """With `partial`, only the fitting parts of a plan are enforced, and `say` reports the
        others. Raises UsageError when a section does not fit, or there is none."""
        require_sections(plan)
        self._run = Run(plan, machine, command, environment, partial, say, Shares(machine))
        self._sections: dict[str, Enforcement] = {
            name: load_planner(name).enforce(section, self._run)
            for name, section in ordered_sections(plan)
        }
        self.cause: str | None = None

    def announced(self) -> list[str]:
        """Return the sentences to print before the job starts."""
        return [sentence for one in self._sections.values() for sentence in one.announced]

    def intent(self) -> Iterator[str | Table]:
        """Yield the intended effects of all sections."""
        for one in self._sections.values():
            yield from one.intent()

    @contextlib.contextmanager
    def started(self) -> Iterator[Job]:
        """Start the job, and stop it at the end of the block. Raises DltuneError when the
        command or the environment cannot be made, or the job cannot be started."""
        sections = list(self._sections.values())
        command = self._run.command
        for one in sections:
            command = one.command(command)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dltune-")))
            environment: dict[str, str] = {}
            for one in reversed(sections):
                base = {**self._run.environment, **environment}
                environment |= one.environment(base, folder)
            if not any(one.inside for one in sections):  # nothing to do in the job's Python
                environment["DLTUNE_DISABLE"] = "1"
            job = stack.enter_context(
                Job(command, answer=self.answer, greet=self.greet, environment=environment)
            )
            for one in sections:
                stack.enter_context(one.beside(job.pid))
            yield job

    def watch(self, job: Job) -> dict[str, Outcome]:
        """Follow the job to its end. Return the outcomes of the sections, by planner. Raises
        DltuneError when a section was not in force."""
        sections = list(self._sections.values())
        for event in job.events(LOOK_SECONDS):
            for one in sections:
                one.look(job)
            if event is None:
                continue
            if isinstance(event.message, protocol.Building):
                self._run.say(event.message.phase)
            for one in sections:
                one.hear(job, event)
        code = job.exit_code
        assert code is not None  # it has ended
        # a section that is nearer to the ops has a better reason why nothing was enforced
        outcomes = {name: one.ended(code) for name, one in reversed(self._sections.items())}
        self.cause = next(filter(None, (one.cause() for one in sections)), None)
        return {name: found for name in self._sections if (found := outcomes[name]) is not None}

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """Return the reply to an interpreter of the job that starts. Raises UsageError, also when
        two sections give different values of one key."""
        reply: dict[str, Any] = {}
        authors: dict[str, str] = {}
        for name, section in self._sections.items():
            answer: Mapping[str, Any] = section.answer(python)
            for key, value in answer.items():
                author = authors.setdefault(key, name)
                if key == "adapters":  # each section has its own
                    reply[key] = [*reply.get(key, ()), *value]
                elif reply.setdefault(key, value) != value:
                    raise UsageError(
                        f"the plan's sections {author!r} and {name!r} give process {python.pid} of "
                        f"the job different values of {key!r}",
                        remedy="remove one of these sections from the plan",
                    )
        return {**reply, "plugin": self._run.pools is not None}

    def greet(self, process: Process) -> list[str]:
        """Return the first orders of a plugin: its cores and pools, then the sections' orders."""
        machine, rank = self._run.shares.of(process.pid)
        pools = self._run.pools(machine, rank) if self._run.pools else None
        sections = self._sections.values()
        orders = [line for one in sections for line in one.greet(process)]
        recorded = dict.fromkeys(graph for one in sections for graph in one.recorded)
        if recorded and not any(one.orders_recording for one in sections):
            orders += sampled_lines([*recorded])
        return [*machine_lines(machine, pools), *orders]


_applied = False


def apply(path: Path) -> None:
    """Enforce the plan at `path` in this process.

    A rank of a launcher gets its part of the node's cores. Raises UsageError, before anything is
    changed, when the plan does not fit this machine, when one of its sections cannot be enforced
    from inside, or when another plan is enforced in this process.
    """
    global _applied
    plan = load_plan(path)
    require_sections(plan)
    machine = topology.local()
    require_machine(plan, machine)
    if _applied or os.environ.get("DLTUNE_SOCKET"):
        raise UsageError(
            "this process already runs under a plan",
            remedy="call dltune.apply only once, and not under dltune run",
        )
    rank = local_rank(os.environ)
    part = rank_cores(machine, rank) if rank is not None and rank.size > 1 else machine
    actions = [
        load_planner(name).apply(section, plan, part) for name, section in ordered_sections(plan)
    ]
    if part is not machine:
        os.sched_setaffinity(0, [cpu for core in part.cores for cpu in core.cpus])
    for action in reversed(actions):  # first what can still fail: the framework's
        action()
    _applied = True
