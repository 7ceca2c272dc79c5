"""A step with all its timelines, as drawn on the page and in Perfetto: the measured execution, and
executions simulated from the profile, under settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dltune.base.errors import DltuneError
from dltune.plan.plan import in_order
from dltune.plan.registry import planner
from dltune.plan.threads.decide import planned
from dltune.plan.threads.replay import replayed
from dltune.plan.threads.strategies import per_instance, per_type
from dltune.report.timeline import Slice, Timeline, levels, measured, simulated
from dltune.schemas.plan import Plan, Threads
from dltune.schemas.profile import Profile, Step
from dltune.simulate import step_graph
from dltune.simulate.machine_transfer import transferred
from dltune.simulate.step_graph import lives
from dltune.simulate.workload import Calibration, Outcome, Workload, calibrated
from dltune.system.topology import BUILTIN_MACHINES

STRATEGY_3 = "per-type+co-run"


@dataclass(frozen=True)
class Execution:
    """`timelines`: the measured one first, where there is one. `inter` is the inter-op parallelism
    that TensorFlow recommends, the line in Fig. 4."""

    step: Step
    timelines: tuple[Timeline, ...]
    inter: int


@dataclass(frozen=True)
class Simulation:
    """`outcome` has a timeline for each step."""

    title: str
    outcome: Outcome


@dataclass(frozen=True)
class Simulations:
    """The simulations. `calibration` ties simulated times to the measured span. `remark`: a
    note on anything that could not be simulated."""

    found: Sequence[Simulation]
    calibration: Calibration | None
    remark: str | None = None


def executions(profile: Profile, plan: Plan | None) -> tuple[list[Execution], Simulations]:
    """One for each step of the profile, and what the simulations among them rest on."""
    made = simulations(profile, plan)
    sections = in_order(plan) if plan and made.calibration else []
    found = []
    for index, step in enumerate(profile.steps):
        timelines = (
            measured(step),
            *(simulated(s.title, s.outcome.timelines[index], step) for s in made.found),
            *(
                simulated(f"simulated: {title}", timeline, step)
                for name, section in sections
                for title, timeline in planner(name).timelines(section, profile, step)
            ),
        )
        kept = tuple(timeline for timeline in timelines if timeline.slices)
        found.append(Execution(step, kept, profile.machine.sockets))
    return found, made


def live_bytes(step: Step, slices: Sequence[Slice]) -> list[tuple[int, int]]:
    """(nanoseconds, bytes from then on) that the ops of a step need over one execution, by the
    graph, without what outlives it."""
    graph = step_graph.graph(step)
    start, end = (np.full(len(graph), -1, np.int64) for _ in range(2))
    nodes = [piece.node for piece in slices]
    start[nodes] = [piece.start for piece in slices]
    end[nodes] = [piece.end for piece in slices]
    found = lives(graph, start, end)
    return levels(zip(found.begin.tolist(), found.end.tolist(), found.bytes.tolist(), strict=True))


def simulations(profile: Profile, plan: Plan | None) -> Simulations:
    """The job's own settings, the plan's, and co-running by strategy 3, all on the same machine.

    What cannot be simulated (no thread samples, no compiler) is a remark and not an error: the page
    shows the rest.
    """
    try:
        made, calibration = calibrated(profile)
    except DltuneError as error:
        return Simulations((), None, f"no simulated timelines: {error}")
    own = made.own
    title = f"simulated: own settings {own.intra}x{own.inter}"
    found = [Simulation(title, made.uniform(own.intra, own.inter))]
    remark = None
    section = plan.of(Threads) if plan else None
    if plan and section:
        known = (profile.machine, *BUILTIN_MACHINES.values())
        there = next((machine for machine in known if machine.fingerprint == plan.machine), None)
        if there is None:
            remark = (
                f"no timeline of the plan: it is for {plan.machine_name} with {plan.cores} cores, "
                "whose description is missing"
            )
        else:
            made = transferred(made, there)
            uniform = section.uniform
            same = there == profile.machine and not section.ops
            if not same or (uniform.intra, uniform.inter) != (own.intra, own.inter):
                title = f"simulated: plan {section.strategy}"
                found.append(Simulation(title, replayed(made, section)))
    if section is None or not section.corun:
        found.append(Simulation(f"simulated: co-running ops ({STRATEGY_3})", _strategy_3(made)))
    return Simulations(found, calibration, remark)


def _strategy_3(made: Workload) -> Outcome:
    option = planned(made, STRATEGY_3, per_type(made, per_instance(made)))
    return made.corun(
        option.choices,
        option.candidates,
        option.uniform.inter,
        hyperthreads=False,
        with_cores=True,
    )
