"""A step with all its timelines: what the page, and Perfetto, draw."""

from __future__ import annotations

from dataclasses import dataclass

from dltune.documents.plan import Plan
from dltune.documents.profile import Profile, Step
from dltune.report.simulations import Simulations, simulations
from dltune.report.timeline import Timeline, measured, simulated


@dataclass(frozen=True)
class Execution:
    """`timelines`: the measured one first, where there is one. `inter` is the inter-op parallelism
    that TensorFlow recommends, the line in Fig. 4."""

    step: Step
    timelines: tuple[Timeline, ...]
    inter: int


def executions(profile: Profile, plan: Plan | None) -> tuple[list[Execution], Simulations]:
    """One for each step of the profile, and what the simulations among them rest on."""
    made = simulations(profile, plan)
    found = []
    for index, step in enumerate(profile.steps):
        own = measured(step)
        timelines = [own] if own else []
        timelines += [
            simulated(simulation.title, simulation.outcome.timelines[index])
            for simulation in made.found
        ]
        kept = tuple(timeline for timeline in timelines if timeline.slices)
        found.append(Execution(step, kept, profile.machine.sockets))
    return found, made
