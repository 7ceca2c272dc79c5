"""Rules: each finds one cause of slowness, and has the texts that the reference prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from dltune.findings.evidence import Evidence
from dltune.schemas.diagnosis import Finding

# in the order of findings whose cost is equal
Group = Literal["ranks", "memory", "cores", "python", "data", "ops"]
FrameworkName = Literal["tensorflow", "pytorch"]
Find = Callable[[Evidence], Iterator[Finding]]

EITHER: tuple[FrameworkName, ...] = ("tensorflow", "pytorch")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule for the cause `name`. `summary`: the problem, `fix`: the usual fix, a sentence each.
    `frameworks`: those whose jobs can have the problem, or can apply the fix. `order`: the place
    among rules of the group whose findings cost the same; the name decides if that is the same,
    too. `is_limitation`: it reports missing evidence and not a cause. Calling a rule yields its
    findings for the evidence at hand."""

    name: str
    group: Group
    summary: str
    fix: str
    frameworks: tuple[FrameworkName, ...]
    order: int
    is_limitation: bool
    find: Find

    def __call__(self, evidence: Evidence) -> Iterator[Finding]:
        for finding in self.find(evidence):
            yield msgspec.structs.replace(finding, cause=self.name)

    def is_for(self, framework: str | None) -> bool:
        """True if jobs of `framework` can have the problem; an unknown framework can."""
        return framework is None or framework in self.frameworks


def rule(
    name: str,
    group: Group,
    *,
    summary: str,
    fix: str,
    frameworks: tuple[FrameworkName, ...] = EITHER,
    order: int = 0,
    is_limitation: bool = False,
) -> Callable[[Find], Rule]:
    """Make a rule of a function that yields findings; the rule sets their cause to `name`."""

    def decorate(find: Find) -> Rule:
        return Rule(
            name=name,
            group=group,
            summary=summary,
            fix=fix,
            frameworks=frameworks,
            order=order,
            is_limitation=is_limitation,
            find=find,
        )

    return decorate
