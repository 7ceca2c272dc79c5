"""What a reader is told of a job of which nothing was found."""

from __future__ import annotations

import msgspec
import pytest

from dltune.documents.diagnosis import Step
from dltune.findings.diagnosis import diagnose
from dltune.findings.seen import Seen
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
    healthy = diagnose(Seen(), "python train.py", 60.0, None, None)
    assert bool(further(msgspec.structs.replace(healthy, step=step))) is told
