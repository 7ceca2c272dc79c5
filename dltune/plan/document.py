"""Make the plan document, or put the thread section into one that exists."""

from __future__ import annotations

import msgspec

from dltune.documents import files
from dltune.documents.machine import Machine
from dltune.documents.plan import Plan, Threads, bare
from dltune.documents.profile import Profile
from dltune.errors import UsageError


def document(profile: Profile, machine: Machine, threads: Threads) -> Plan:
    """A plan with this section, which tells where it came from."""
    made = bare(
        machine,
        profile=files.digest(profile),
        tensorflow=profile.tensorflow.version,
        signatures=tuple(step.signature for step in profile.steps),
    )
    return msgspec.structs.replace(made, threads=threads)


def put_into(existing: Plan, made: Plan) -> Plan:
    """`existing` with the section of `made`.

    Raises UsageError when the two are not for the same machine and the same graphs.
    """
    if existing.machine != made.machine:
        raise UsageError(
            f"that plan is for {existing.machine_name} with {existing.cores} cores, "
            f"this one for {made.machine_name} with {made.cores}",
            remedy="write a plan of its own with -o",
        )
    # a plan on reading data alone is for any graph
    if existing.signatures and set(existing.signatures) != set(made.signatures):
        raise UsageError(
            "that plan was made for other graphs than those of this profile",
            remedy="write a plan of its own with -o",
        )
    return msgspec.structs.replace(
        existing,
        created=made.created,
        profile=made.profile,
        tensorflow=made.tensorflow,
        signatures=made.signatures,
        threads=made.threads,
    )
