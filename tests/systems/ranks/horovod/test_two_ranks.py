"""The bundled training script on two real ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from two_ranks import STEPS, Controller, Trained

pytestmark = pytest.mark.tensorflow


def test_ranks_end_with_the_same_parameters(
    controller: Controller, plain_ranks: Callable[[Controller], Trained]
) -> None:
    first, second = plain_ranks(controller).ranks

    assert len(first.losses) == len(second.losses) == STEPS
    assert first.losses != second.losses  # each rank has data of its own
    assert first.parameters == second.parameters is not None
    assert first.threads  # hvd.init() started its background thread
