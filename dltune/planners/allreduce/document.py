"""What a plan is made from, checked against each other; the section put into a plan."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dltune.documents import files
from dltune.documents.horovod import Horovod
from dltune.documents.plan import Plan, bare
from dltune.documents.profile import Profile
from dltune.documents.sections.allreduce import AllreducePlan, Controller
from dltune.errors import UsageError
from dltune.planners.allreduce.observed import Observed, observed, unobserved


def basis(
    profile: Profile,
    report: Horovod | None,
    path: Path | None,
    *,
    ranks: int | None,
    local: int | None,
    controller: Controller | None,
) -> Observed:
    """What is known of the job; `ranks`, `local` and `controller` are what was asked for.

    Raises UsageError when the report is of another job than asked for or of another machine than
    the profile, or when there is neither a report nor a size.
    """
    if report is None:
        if ranks is None or controller is None:
            raise UsageError(
                "without a report, how many ranks the job has and how they talk is not known",
                remedy="give a report, or --ranks N --controller mpi|gloo",
            )
        local = ranks if local is None else local
        if local > ranks:
            raise UsageError(f"--local {local}: the job has {ranks} ranks in all")
        return unobserved(ranks, local, controller)
    found = observed(report)
    if report.machine != profile.machine.fingerprint:
        raise UsageError(
            f"{path} was made on {report.machine_name}, the profile on {profile.machine.name} with "
            f"{len(profile.machine.cores)} cores, and these are not the same machine",
            remedy="make both on one machine, with the same cores allowed",
        )
    locals_ = {rank.local_size for rank in report.ranks}
    if len(locals_) > 1:
        raise UsageError(
            f"{path}: nodes have different numbers of ranks, "
            + " and ".join(map(str, sorted(locals_))),
            remedy="give each node as many ranks",
        )
    if ranks is not None and ranks != found.ranks:
        raise UsageError(
            f"{path} is of a job of {found.ranks} ranks, not {ranks}",
            remedy="report on a job of that size, or leave --ranks out",
        )
    if local is not None and local != found.local:
        more = "more" if local > found.local else "fewer"
        raise UsageError(
            f"--local {local}: {more} than the {found.local} ranks a node has in {path}",
            remedy="report on a job with that many, or leave --local out",
        )
    if controller is not None and controller != found.controller:
        raise UsageError(
            f"{path} is of a job with {found.controller}, not {controller}",
            remedy="report on a job with that, or leave --controller out",
        )
    return found


def document(section: AllreducePlan, profile: Profile, existing: Plan | None) -> Plan:
    """A plan with this section: `existing` with it, or one of its own.

    Raises UsageError when `existing` is for another machine or other graphs.
    """
    made = bare(
        profile.machine,
        profile=files.digest(profile),
        tensorflow=profile.framework.version,
        signatures=tuple(step.signature for step in profile.steps),
    )
    if existing is None:
        return msgspec.structs.replace(made, allreduce=section)
    if existing.machine != made.machine:
        raise UsageError(
            f"that plan is for {existing.machine_name} with {existing.cores} cores, this profile "
            f"of {made.machine_name} with {made.cores}",
            remedy="write a plan of its own with -o",
        )
    # a plan on reading data alone is for any graph
    if not existing.signatures:
        existing = msgspec.structs.replace(
            existing,
            profile=made.profile,
            tensorflow=made.tensorflow,
            signatures=made.signatures,
        )
    elif set(existing.signatures) != set(made.signatures):
        raise UsageError(
            "that plan was made for other graphs than those of this profile",
            remedy="make both from the profile of the parallel job, or write a plan of its own "
            "with -o",
        )
    return msgspec.structs.replace(existing, created=made.created, allreduce=section)
