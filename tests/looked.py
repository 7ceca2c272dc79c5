"""Findings as the registry's rules make them, each checked against its rule's file."""

from __future__ import annotations

from dltune.documents.finding import Finding, faults
from dltune.findings.registry import RULES, look
from dltune.findings.seen import Seen


def looked(seen: Seen) -> tuple[Finding, ...]:
    """All findings. Each has the cause that its file is named after, and no faults."""
    found = look(seen)
    for rule in RULES:
        name = rule.__module__.rpartition(".")[2].replace("_", "-")
        assert {one.cause for one in rule(seen)} <= {name}
    assert list(faults("findings", found)) == []
    return found
