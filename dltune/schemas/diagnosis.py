"""The diagnosis document: the causes that slow a job down. `dltune diagnose -o FILE.json` writes
it.

Times are in seconds and sizes in bytes; *cores* are CPU seconds per second.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dltune.base import files
from dltune.base.faults import AMOUNT
from dltune.schemas import finding, machine, observation
from dltune.schemas.finding import Finding
from dltune.schemas.machine import Machine
from dltune.schemas.observation import Observation

SCHEMA = "dltune.diagnosis/1"


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The step time and its limit.

    `seconds`: median time of a round of the steps while ops are not recorded.
    `limit`: time that the ops would need if all cores worked on them all the time, computed from
      their single times; null if ops were not measured.
    `cores`: number of cores in the limit.
    """

    seconds: float
    limit: float | None
    cores: int


class Diagnosis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A diagnosis.

    `subject`: the job's command, `pid N`, or the files that were read.
    `seconds`: duration of the observation.
    `step`: step time; null if no step was observed.
    `no_step`: reason why no step was observed.
    `healthy`: true if steps and Python were observed to the end and no finding costs 5 % of the
      time or more.
    `findings`: findings in order of cost.
    `observation`: the job under its own settings; null for a diagnosis of files.
    `unseen`: things that could not be observed, with the reason.
    `machine`: machine that the job ran on; null if unknown.
    """

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
