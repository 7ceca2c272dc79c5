"""Findings on ranks from what was observed and measured of a job."""

from __future__ import annotations

import msgspec
import pytest
from looked import looked
from losing_steps import eager, parts, step, wrong
from observations import host, observation, process

from dltune.findings.evidence import Evidence
from dltune.schemas.profile import ALLREDUCE, Collective, Samples


def test_a_rank_that_its_launcher_has_bound():
    bound = observation(processes=(process(cpus=(0,), ranks=1, cpu=0.99),))
    finding = looked(Evidence(observation=bound))[0]
    assert (finding.cause, finding.share) == ("ranks-on-one-core", 0.5)
    assert "--bind-to none" in (finding.fix or "")


def test_a_rank_bound_to_both_hyperthreads_of_a_core_has_one_core():
    four = host(cpus=(0, 1, 2, 3), online=4, hyperthreads=((0, 2), (1, 3)))
    bound = observation(host=four, processes=(process(cpus=(0, 2), ranks=1),))
    assert looked(Evidence(observation=bound))[0].share == 0.5


def test_two_ranks_of_two_cores_are_bound_as_they_should():
    bound = observation(processes=(process(cpus=(0,), ranks=2, cpu=0.99, intra=1),))
    assert looked(Evidence(observation=bound)) == ()


def test_waiting_for_gradients_is_no_pause_of_python_s():
    """Of 10 ms the backward pass ends after 4, and a bucket that it asked for comes after 9."""
    made = eager(
        ("forward/relu", 0.0, 0.002),
        ("backward/mul", 0.002, 0.004),
        (f"backward/{ALLREDUCE}", 0.004, 0.004),
        ("forward/torch.distributed.ddp.reducer::copy_bucket_to_grad", 0.009, 0.0095),
        ("optimizer/_fused_adam_", 0.0095, 0.01),
    )
    made = parts(made, ops=0.005, communication=0.005)
    step = msgspec.structs.replace(
        made.steps[0],
        collectives=(Collective(2, 1 << 20, Samples(9, 4e-3, 5e-3, 0.1)),),
    )
    (found,) = wrong(msgspec.structs.replace(made, steps=(step,)))
    assert found.cause == "communication-wait"
    assert found.seconds == pytest.approx(5e-3)
    assert found.evidence == (
        "the largest allreduce, 1.0 MiB, takes 5 ms; it takes 4 ms if no rank is late"
    )
    assert "dltune plan buckets" in str(found.fix)


def test_waiting_for_other_ranks_is_the_greatest_loss():
    seconds = {"ops": 0.07, "executor": 0.002, "python": 0.001, "communication": 0.03}
    first = step(**seconds)[0]
    assert first.cause == "communication-wait"
    assert first.share == pytest.approx(0.03 / sum(seconds.values()))
    assert first.seconds == pytest.approx(0.03)
