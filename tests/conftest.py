"""Lets tests import the modules that stand beside this file, such as `synthetic`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).parent))

# no deadlines: machines are shared; the same examples in every run, so that a failure comes again
settings.register_profile("dltune", deadline=None, derandomize=True)
settings.load_profile("dltune")

# a suite started in the background ignores these and hands that on; the jobs here must hear them
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Python code in a process that says a line when it is ready; ends it with the test."""
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str, *arguments: object, **options: object) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            **options,  # type: ignore[call-overload]
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child

    yield start
    for child in children:
        child.kill()
        with child:
            pass
