"""Findings as the registry's rules make them, each checked against its rule's file and the space of
settings."""

from __future__ import annotations

from dltune.base.documents import struct_faults
from dltune.findings.evidence import Evidence
from dltune.findings.rule import apply_rules, rules
from dltune.plan.settings.setting import Circumstances
from dltune.plan.settings.space import by_name
from dltune.schemas.diagnosis import Finding
from dltune.system import topology


def looked(evidence: Evidence) -> tuple[Finding, ...]:
    """All findings. Each has its rule's cause, and no faults; what it has
    dltune apply is there, and changes no more than rounding."""
    found = apply_rules(evidence)
    for rule in rules():
        assert {finding.cause for finding in rule(evidence)} <= {rule.name}
    assert not [fault for finding in found for fault in struct_faults("finding", finding)]
    here = Circumstances(topology.local(), ("python", "train.py"), {})
    for finding in found:
        for choice in finding.apply:
            assert by_name(choice.setting).kind != "lossy"
            by_name(choice.setting).means(choice.value, here)
        assert {by_name(name).name for name in finding.try_next} == set(finding.try_next)
    return found
