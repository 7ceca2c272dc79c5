"""The diagnosis: what costs a job its time, the most costly first, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dltune.documents import files, finding, machine, observation
from dltune.documents.faults import AMOUNT
from dltune.documents.finding import Finding
from dltune.documents.machine import Machine
from dltune.documents.observation import Observation

SCHEMA = "dltune.diagnosis/1"


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`seconds` of a round of the steps, the median, while its ops are not recorded. `limit`:
    seconds that its ops would need if all cores worked on them all the time, as they were measured
    one by one (None: they were not); `cores` in the limit."""

    seconds: float
    limit: float | None
    cores: int


class Diagnosis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`subject`: the command, "pid N", or the files that were read. `step`: None where none was
    seen, and `no_step` says why. `healthy`: its steps and its Python were seen, to the end of the
    look, and nothing costs a twentieth of the time or more. `findings`: the most costly first.
    `machine`: where the job was seen; None where that is not known."""

    schema: str
    created: str
    dltune: str
    subject: str
    seconds: float
    step: Step | None
    no_step: str | None
    healthy: bool
    findings: tuple[Finding, ...]
    observation: Observation | None
    unseen: tuple[str, ...]
    partial: str | None = None
    machine: Machine | None = None


def check(diagnosis: Diagnosis) -> list[str]:
    """All that cannot be true of a diagnosis, one sentence each, the field's path first."""
    return [*_faults(diagnosis)]


def _faults(diagnosis: Diagnosis) -> Iterator[str]:
    yield from AMOUNT.of("", diagnosis, "seconds")
    yield from AMOUNT.of("step", diagnosis.step, "seconds", "limit")
    yield from finding.faults("findings", diagnosis.findings)
    if diagnosis.observation is not None:
        yield from observation.faults(diagnosis.observation)
    if diagnosis.machine is not None:
        yield from (f"machine.{fault}" for fault in machine.check(diagnosis.machine))


load = files.reader(Diagnosis, SCHEMA, check)
