"""Put together the result document and the baseline from the measurements."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dltune import __version__
from dltune.base import documents
from dltune.gate.config import Config
from dltune.gate.measure import Measurement
from dltune.gate.verdict import Sample, held, overall
from dltune.schemas import gate as doc
from dltune.schemas.machine import Machine


def result(
    made: Measurement,
    *,
    machine: Machine,
    command: Sequence[str],
    base: doc.Revision,
    head: doc.Revision,
    config: Config,
    seconds: float,
    slower: tuple[doc.Slower, ...] = (),
) -> doc.Result:
    """The result of a gate. `seconds`: its duration; `slower`: where the time went."""
    verdicts = tuple(
        msgspec.structs.replace(verdict, passed=held(verdict, config)) for verdict in made.verdicts
    )
    return doc.Result(
        schema=doc.RESULT_SCHEMA,
        created=documents.now(),
        dltune=__version__,
        machine=machine,
        command=tuple(command),
        kind=made.kind,
        base=base,
        head=head,
        confidence=config.confidence,
        budget=config.budget,
        seconds=seconds,
        outcome=overall(made.verdicts),
        passed=all(verdict.passed for verdict in verdicts),
        verdicts=verdicts,
        measured={
            name: tuple(found)
            for name in ("base", "head")
            if (found := [_measured(s, name) for s in made.samples.values() if s.of(name)])
        },
        notes=tuple(made.notes),
        slower=slower,
    )


def baseline(
    made: Measurement, *, machine: Machine, command: Sequence[str], commit: str | None
) -> doc.Baseline:
    """The baseline of one side's measurement."""
    return doc.Baseline(
        schema=doc.BASELINE_SCHEMA,
        created=documents.now(),
        dltune=__version__,
        machine=machine,
        command=tuple(command),
        kind=made.kind,
        commit=commit,
        measured=tuple(_measured(s, "head") for s in made.samples.values() if s.head),
        missing={s.metric: s.missing for s in made.samples.values() if s.missing},
    )


def _measured(sample: Sample, side: str) -> doc.Measured:
    return doc.Measured(sample.metric, sample.unit, tuple(sample.of(side)), sample.exact)
