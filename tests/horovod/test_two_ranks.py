"""The bundled training script on two real ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from two_ranks import TRAIN, Controller, Running

pytestmark = pytest.mark.tensorflow


def test_ranks_end_with_the_same_parameters(
    controller: Controller, ranks: Callable[..., Running]
) -> None:
    job = ranks(controller, (TRAIN, "--steps", 5, "--blocks", 2))

    assert job.wait() == 0, job.stderr

    first, second = job.rank(0), job.rank(1)
    assert len(first.losses) == len(second.losses) == 5
    assert first.losses != second.losses  # each rank has data of its own
    assert first.parameters == second.parameters is not None
    assert first.threads  # hvd.init() started its background thread
