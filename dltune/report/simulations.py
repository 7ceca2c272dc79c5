"""Executions to be shown beside the measured one: simulated from the profile, under settings."""

from __future__ import annotations

from dataclasses import dataclass

from dltune.documents.machine import Machine
from dltune.documents.plan import Plan
from dltune.documents.profile import Profile
from dltune.documents.sections.threads import Threads
from dltune.errors import DltuneError
from dltune.machine.known import KNOWN
from dltune.planners.threads.decide import planned
from dltune.planners.threads.replay import replayed
from dltune.planners.threads.strategies import per_instance, per_type
from dltune.workload.calibration import Calibration, calibrated
from dltune.workload.transfer import transferred
from dltune.workload.workload import Outcome, Workload

STRATEGY_3 = "s1+s2+s3"


@dataclass(frozen=True)
class Simulation:
    """`inter`: the executor slots; `machine`: where. `outcome` has a timeline for each step."""

    title: str
    inter: int
    outcome: Outcome


@dataclass(frozen=True)
class Simulations:
    """`calibration` ties simulated times to the measured span. `remark`: what could not be
    simulated."""

    found: tuple[Simulation, ...]
    calibration: Calibration | None
    remark: str | None = None


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
    found = [Simulation(title, own.inter, made.uniform(own.intra, own.inter))]
    remark = None
    section = plan.of(Threads) if plan else None
    if plan and section:
        there = _machine(profile, plan)
        if there is None:
            remark = (
                f"no timeline of the plan: it is for {plan.machine_name} with {plan.cores} cores, "
                "whose description is not at hand"
            )
        else:
            moved = transferred(made, there)
            uniform = section.uniform
            same = there == profile.machine and not section.ops
            if not same or (uniform.intra, uniform.inter) != (own.intra, own.inter):
                outcome = replayed(moved, section)
                found.append(
                    Simulation(f"simulated: plan {section.strategy}", uniform.inter, outcome)
                )
            made = moved
    if section is None or not section.corun:
        found.append(_strategy_3(made))
    return Simulations(tuple(found), calibration, remark)


def _machine(profile: Profile, plan: Plan) -> Machine | None:
    """The machine that the plan is for."""
    known = (make() for make in KNOWN.values())
    for machine in (profile.machine, *known):
        if machine.fingerprint == plan.machine:
            return machine
    return None


def _strategy_3(made: Workload) -> Simulation:
    choices = per_type(made, per_instance(made))
    option = planned(made, STRATEGY_3, choices)
    inter = option.uniform.inter
    outcome = made.corun(
        option.choices, option.candidates, inter, hyperthreads=False, with_cores=True
    )
    return Simulation(f"simulated: strategy 3 ({STRATEGY_3})", inter, outcome)
