"""What a reader is told of a job of which nothing was found."""

from __future__ import annotations

import pytest

from dltune.documents.diagnosis import SCHEMA, Diagnosis, Step
from dltune.findings.words import further


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (Step(0.1, 0.047, 2), True),
        (Step(0.1, None, 2), False),
        (Step(0.1, 0.093, 2), False),
        (None, False),
    ],
)
def test_a_healthy_job_far_from_its_limit_is_told_how_to_go_further(step, told):
    diagnosis = Diagnosis(
        schema=SCHEMA,
        created="2026-11-26T20:00:00+00:00",
        dltune="0.1.0",
        subject="python train.py",
        seconds=60.0,
        step=step,
        no_step=None,
        healthy=True,
        findings=(),
        observation=None,
        unseen=(),
        partial=None,
    )
    assert bool(further(diagnosis)) is told
