"""Rules, their registry, and the order of their findings.

Each rule finds one cause of slowness, and has the texts that the reference prints.

An extension names packages and modules that hold rules (`Extension.rules`; dltune's core and its
systems are extensions, too). The registry scans them, so a new file with a rule needs no entry.

Findings are ordered by, in this sequence:

1. their cost, or the greatest gain of their fix if that is smaller, the largest first. An unknown
   cost counts as none. Costs that differ only by rounding are equal;
2. whether they have a fix. A finding without a fix says that nothing has to be done;
3. the group of their rule, in the order of `Group`;
4. `Rule.order`, for rules of a group that can report the same time, or that report no cost;
5. the name of their rule;
6. the order in which their rule yields them.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Literal, get_args

import msgspec

from dltune import extensions
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


# The registry of rules

log = logging.getLogger(__name__)


@cache
def rules() -> tuple[Rule, ...]:
    """Return all rules, in the order of findings whose cost is equal."""
    groups = get_args(Group)
    found = dict.fromkeys(rule for each in extensions.extensions() for rule in _registered(each))
    return tuple(sorted(found, key=lambda rule: (groups.index(rule.group), rule.order, rule.name)))


def _registered(extension: extensions.Extension) -> list[Rule]:
    """Return the rules of an extension. If those of another package cannot be imported, warn."""
    try:
        modules = [module for name in extension.rules for module in _modules(name)]
    except Exception as error:  # importing another package can raise anything
        if extension in extensions.own():
            raise
        reason = f"{type(error).__name__}: {error}"
        log.warning("the rules of the extension %r cannot be loaded: %s", extension.name, reason)
        return []
    return [rule for module in modules for rule in vars(module).values() if isinstance(rule, Rule)]


def _modules(name: str) -> Iterator[ModuleType]:
    """Import a module; if it is a package, all modules in it, too."""
    module = importlib.import_module(name)
    yield module
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield from _modules(f"{name}.{info.name}")


def apply_rules(evidence: Evidence) -> tuple[Finding, ...]:
    """Apply all rules to the evidence, and return their findings, the most costly first."""
    applicable = (rule for rule in rules() if rule.is_for(evidence.framework))
    findings = sort_by_cost(finding for rule in applicable for finding in rule(evidence))
    for finding in findings:
        log.debug(
            "%s, share %s: %s (%s)", finding.cause, finding.share, finding.title, finding.evidence
        )
    return findings


def sort_by_cost(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by cost and by whether they have a fix; equal findings keep their order."""

    def key(finding: Finding) -> tuple[float, bool]:
        share = finding.share or 0.0
        cost = min(share, finding.gain.high) if finding.gain else share
        return -round(cost, 6), finding.fix is None

    return tuple(sorted(findings, key=key))
