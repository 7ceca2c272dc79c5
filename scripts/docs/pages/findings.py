"""The page of findings, from the registry of rules."""

from __future__ import annotations

from dltune.findings.rule import rules
from dltune.frameworks.capabilities import framework
from pages.markdown import paragraph

_GROUPS = {
    "cores": "CPU cores and processes",
    "python": "Python code",
    "data": "Input data",
    "ops": "Ops and threads",
    "memory": "Memory",
    "ranks": "Several ranks",
}
_INTRODUCTION = """
`dltune diagnose`, `dltune show`, `dltune io-report` and `dltune horovod-report` report findings: a
cause of slowness, with its evidence, its cost and a fix. Each finding names the rule that it comes
from. Some findings exclude a cause instead, and need no fix. *Thesis* is the publication on
[ranks and reading](../research/index.md#ranks-and-reading).
"""


def pages() -> dict[str, str]:
    parts = ["# Findings", paragraph(_INTRODUCTION)]
    groups = {rule.group for rule in rules()}
    assert groups <= _GROUPS.keys(), f"groups without a title: {groups - _GROUPS.keys()}"
    for group, title in _GROUPS.items():
        if group not in groups:
            continue  # its system is not installed
        parts.append(f"## {title}")
        for rule in sorted((r for r in rules() if r.group == group), key=lambda r: r.name):
            parts += [f"### {rule.name}", paragraph(rule.summary)]
            if len(rule.frameworks) == 1:
                parts.append(f"Only for {framework(rule.frameworks[0]).title}.")
            if rule.fix:
                parts.append(paragraph(f"**Fix:** {rule.fix}"))
    return {"findings.md": "\n\n".join(parts)}
