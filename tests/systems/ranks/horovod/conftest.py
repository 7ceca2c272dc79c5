"""`ranks("gloo", ...)` starts a real job of two ranks and ends it after the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import two_ranks


@pytest.fixture(params=["gloo", "mpi"])
def controller(request: pytest.FixtureRequest) -> two_ranks.Controller:
    """Each controller that can run here in turn."""
    if reason := two_ranks.missing(request.param):
        pytest.skip(reason)
    kind: two_ranks.Controller = request.param
    return kind


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Callable[..., two_ranks.Running]]:
    """`ranks(controller, script, under=..., env=..., launcher=...)`: as `two_ranks.job`."""
    with contextlib.ExitStack() as jobs:
        count = 0

        def start(
            controller: two_ranks.Controller, *arguments: Any, **options: Any
        ) -> two_ranks.Running:
            nonlocal count
            if reason := two_ranks.missing(controller):
                pytest.skip(reason)
            count += 1
            folder = tmp_path / f"job{count}"
            return jobs.enter_context(two_ranks.job(folder, controller, *arguments, **options))

        yield start
