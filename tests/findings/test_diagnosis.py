"""The texts around findings: expected gains, sentences, and a healthy job's next step."""

from __future__ import annotations

import msgspec
import pytest

from dltune.findings.diagnosis import diagnose, format_gain, suggest_next, to_sentence
from dltune.findings.evidence import Evidence
from dltune.schemas.diagnosis import Finding, Gain, Step


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
    healthy = diagnose(Evidence(), "python train.py", 60.0, None, None)
    assert bool(suggest_next(msgspec.structs.replace(healthy, step=step))) is told


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.25, 0.5, "1.33x to 2.00x as fast (measured in this job)"),
        (0.074, 0.0741, "1.08x as fast (measured in this job)"),
        (0.004, 0.074, "up to 1.08x as fast (measured in this job)"),
        (0.0, 1.0, "up to many times as fast (measured in this job)"),
    ],
)
def test_an_expected_gain_is_a_range_only_if_its_ends_differ(low, high, text):
    finding = Finding(
        cause="eager",
        title="the job runs its ops eagerly",
        evidence="",
        gain=Gain(low, high),
        confidence="measured",
    )
    assert format_gain(finding) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ops use 64 threads", "Ops use 64 threads."),
        ("read-ahead is off.", "Read-ahead is off."),
        ("first, wait", "First, wait."),
        ("oneDNN is off", "oneDNN is off."),
        ("tf.function traces graphs", "tf.function traces graphs."),
        ("dltune plan chooses", "dltune plan chooses."),
        ("shard-1 is small", "shard-1 is small."),
    ],
)
def test_a_sentence_leaves_names_and_code_as_they_are(text, shown):
    assert to_sentence(text) == shown
