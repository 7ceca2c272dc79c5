"""All rules, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dltune.documents.finding import Finding
from dltune.findings.seen import Seen

Rule = Callable[[Seen], Iterator[Finding]]

# Of findings whose cost is not known those of earlier rules come first.
RULES: tuple[Rule, ...] = ()


def look(seen: Seen) -> tuple[Finding, ...]:
    """All findings, the most costly first."""
    return ordered(finding for rule in RULES for finding in rule(seen))


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: one.share or 0.0, reverse=True))
