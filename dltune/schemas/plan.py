"""The plan document: decisions, and the predictions on which they rest.

`dltune plan`, `dltune tune` and `dltune diagnose --plan` write it; `dltune run` and `dltune bench`
read it. You can read, edit and commit it. Each planner owns one section; a plan can hold several.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dltune.base import files
from dltune.base.errors import UsageError
from dltune.base.faults import at_least
from dltune.base.visible import visible
from dltune.schemas.profile import Framework

SCHEMA = "dltune.plan/2"

S = TypeVar("S", bound=msgspec.Struct)


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A plan.

    `profile`: SHA-256 of the profile's content.
    `machine`, `machine_name`, `cores`: fingerprint, name and number of cores of the machine that
      the plan is for.
    `framework`: framework that ran the job; null if no section depends on it.
    `signatures`: graphs that the plan was made for; empty if it fits any graph.
    `tasks`: tasks that run these graphs, such as `/job:worker/task:0`, if the job has several.
      Other tasks are left alone.
    `sections`: sections by planner name, in the order in which they take effect.
    """

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
        raise UsageError(
            f"{path} is invalid: in sections.{visible(name)}: {files.located(error)}",
            remedy="create the plan again with this version of dltune",
        ) from None


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
