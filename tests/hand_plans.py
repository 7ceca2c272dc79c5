"""Plans for threads that are written by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dltune.schemas import profile as profiles
from dltune.schemas.machine import Machine
from dltune.schemas.plan import SCHEMA, Candidate, OpPlan, Plan, Prediction, Threads, Uniform


def plan_for(
    profile: profiles.Profile,
    machine: Machine,
    entries: dict[str, tuple[int, tuple[int, ...] | None]],
    *,
    corun: bool = False,
) -> Plan:
    """A plan written by hand: key -> (threads, cores)."""
    section = Threads(
        strategy="by hand",
        uniform=Uniform(profile.settings.intra, profile.settings.inter),
        corun=corun,
        hyperthreads=False,
        small=0.0,
        ops=tuple(
            OpPlan(
                key,
                threads,
                "shared" if threads > 1 else "spread",
                1e-4,
                2e-4,
                cores,
                (Candidate(threads, "spread", 1e-4),) if corun else (),
            )
            for key, (threads, cores) in entries.items()
        ),
        predictions=(Prediction("by hand", 1.0, 1.0, 1.0),),
    )
    return Plan(
        schema=SCHEMA,
        created="",
        dltune="",
        profile="",
        machine=machine.fingerprint,
        machine_name=machine.name,
        cores=len(machine.cores),
        framework=profile.framework,
        signatures=tuple(step.signature for step in profile.steps),
        sections={"threads": section},
    )


def write(plan: Plan, path: Path) -> Path:
    path.write_bytes(msgspec.json.encode(plan))
    return path
