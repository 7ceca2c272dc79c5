"""The plan document: decisions, and the predictions they rest on.

Each planner owns one section; a plan may hold several. A person can read, edit and commit it.
`dltune.planners.plan` reads it whole: it knows each section's planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dltune.documents import files
from dltune.documents.faults import at_least
from dltune.documents.profile import Framework
from dltune.errors import UsageError
from dltune.visible import visible

SCHEMA = "dltune.plan/2"

S = TypeVar("S", bound=msgspec.Struct)


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`profile` is the SHA-256 of the profile's content, `machine` the fingerprint of the machine
    planned for, `framework` what ran the job (None: nothing in the plan depends on it),
    `signatures` the graphs of the steps it was made for. `sections`: what each planner decided, by
    the planner's name. `tasks`: those that run these graphs, where the job has several."""

    schema: str
    created: str
    dltune: str
    profile: str
    machine: str
    machine_name: str
    cores: int
    framework: Framework | None
    signatures: tuple[str, ...]
    sections: dict[str, Any] = {}
    tasks: tuple[str, ...] = ()

    def of(self, kind: type[S]) -> S | None:
        """The section of that kind; None when the plan has none."""
        return next((s for s in self.sections.values() if isinstance(s, kind)), None)


def stored(path: Path) -> Plan:
    """The plan in a file, its sections as JSON has them. Raises UsageError, with every fault."""
    return files.read(path, Plan, SCHEMA, _faults, {1: _second})


def typed(stored: Any, name: str, kind: type[S], path: Path) -> S:
    """A section as JSON has it, as its struct. Raises UsageError where it does not fit."""
    try:
        return msgspec.convert(stored, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: sections.{visible(name)}: {error}") from None


def first(plan: Plan) -> dict[str, Any]:
    """As the first schema had it."""
    fields = {field: getattr(plan, field) for field in plan.__struct_fields__[1:7]}
    return {
        "schema": "dltune.plan/1",
        **fields,
        "tensorflow": plan.framework.version if plan.framework else "",
        "signatures": plan.signatures,
        **{name: plan.sections.get(name) for name in ("threads", "io", "allreduce", "settings")},
    }


def _second(first: Mapping[str, Any]) -> dict[str, Any]:
    """A plan of the first schema: TensorFlow's alone, with its four planners' sections for
    fields."""
    fields = dict(first)
    version = fields.pop("tensorflow", "")
    build = {"name": "tensorflow", "version": version, "git": "", "python": ""}
    names = ("settings", "allreduce", "threads", "io")
    sections = {name: fields.pop(name, None) for name in names}
    return {
        **fields,
        "framework": build if version else None,
        "sections": {name: section for name, section in sections.items() if section is not None},
    }


def _faults(plan: Plan) -> list[str]:
    return at_least(1).of("", plan, "cores")
