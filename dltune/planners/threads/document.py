"""Make the plan document, or put the thread section into one that exists."""

from __future__ import annotations

import msgspec

from dltune.documents import files
from dltune.documents.machine import Machine
from dltune.documents.plan import Plan, Threads, bare
from dltune.documents.profile import Profile
from dltune.documents.sections.settings import SettingsPlan
from dltune.errors import UsageError


def document(profile: Profile, machine: Machine, threads: Threads) -> Plan:
    """A plan with this section, which tells where it came from, and the settings around the ops
    that the profile was made under."""
    made = bare(
        machine,
        profile=files.digest(profile),
        tensorflow=profile.framework.version,
        signatures=tuple(step.signature for step in profile.steps),
    )
    return msgspec.structs.replace(made, threads=threads, settings=profile.under)


def put_into(existing: Plan, made: Plan) -> Plan:
    """`existing` with the section of `made`, and its settings where it has none.

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
        settings=existing.settings or made.settings,
    )


def other_settings(existing: Plan, profile: Profile) -> str | None:
    """A warning when the profile's job did not run under the plan's settings; None when it did."""
    planned, was = _told(existing.settings), _told(profile.under)
    if existing.settings is None or planned == was:
        return None
    return (
        f"that plan has the settings {planned}, this profile was made under {was}: where they "
        "change the graph, threads planned for it are not met; profile with --plan"
    )


def _told(settings: SettingsPlan | None) -> str:
    chosen = sorted(settings.chosen) if settings else []
    return ", ".join(map(str, chosen)) or "none"
