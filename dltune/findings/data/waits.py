"""How long steps wait for data."""

from __future__ import annotations

from dltune.findings.seen import Seen


def input_share(seen: Seen) -> float:
    """Of the wall time: by the parts of the steps, else by the looks at Python; 0 if neither is
    known."""
    if seen.profile and any(step.parts for step in seen.profile.profile.steps):
        parts = [part for step in seen.profile.profile.steps for part in step.parts]
        whole = sum(part.seconds for part in parts)
        waits = sum(part.seconds for part in parts if part.name == "input")
        return waits / whole if whole > 0 else 0.0
    python = seen.observation.python if seen.observation else None
    return sum(one.share for one in python.shares if one.activity == "input") if python else 0.0
