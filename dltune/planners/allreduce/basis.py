"""What a section is decided from, checked against each other."""

from __future__ import annotations

from pathlib import Path

from dltune.documents.horovod import Horovod
from dltune.documents.profile import Profile
from dltune.documents.sections.allreduce import Controller
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
