"""One piece of advice, and what a whole step is to it."""

from __future__ import annotations

from dataclasses import dataclass

from dltune.documents.profile import Op, PartName, Profile, Step


@dataclass(frozen=True)
class Gain:
    """Shares of the steps' wall time that may be saved: expected at least, and at most."""

    low: float
    high: float

    def __str__(self) -> str:
        if self.low < 0.005:
            return f"at most {self.high:.0%} of the step"
        return f"{self.low:.0%} to {self.high:.0%} of the step"


@dataclass(frozen=True)
class Advice:
    """`settings`: names of those in `settings/space` that may help, the likeliest first.

    `sentence`: what was seen, with its figures, and what helps. `gain`: None where the profile's
    figures do not say what could be gained.
    """

    settings: tuple[str, ...]
    sentence: str
    gain: Gain | None

    def __str__(self) -> str:
        return f"{self.sentence}; expected gain: {self.gain or 'cannot be told from a profile'}"


def part(profile: Profile, name: PartName) -> float:
    """A part of the wall time of a round of the steps, as a share; 0 where it is not known."""
    whole = sum(part.seconds for step in profile.steps for part in step.parts)
    seconds = sum(p.seconds for step in profile.steps for p in step.parts if p.name == name)
    return seconds / whole if whole > 0 else 0.0


def working(profile: Profile) -> float:
    """The share of the wall time in which ops ran; all of it where that is not known."""
    return part(profile, "ops") if any(step.parts for step in profile.steps) else 1.0


def seconds(step: Step, index: int, ops: tuple[Op, ...]) -> float:
    """What a node took in the sampled execution, else the median of its op."""
    node = step.nodes[index]
    if node.start is not None and node.end is not None:
        return node.end - node.start
    return (ops[node.op].own or 0.0) * node.repeats if node.op is not None else 0.0


def op_seconds(profile: Profile) -> float:
    """All ops of a round of the steps, under the job's own settings."""
    return sum(
        seconds(step, index, profile.ops)
        for step in profile.steps
        for index in range(len(step.nodes))
    )
