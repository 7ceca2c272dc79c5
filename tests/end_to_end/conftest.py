"""What several files ask of the same jobs: each is run once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from profiled_jobs import JOBS, PYTHON

# more than a job trains until a plan is enforced, or a test has seen enough
STEPS = 300


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[float]]:
    """`plain(again=0)`: the losses of gradient_tape.py by itself, in one run and in another."""
    made: dict[int, list[float]] = {}

    def get(again: int = 0) -> list[float]:
        if again not in made:
            path = tmp_path_factory.mktemp("plain") / "losses"
            command = [PYTHON, JOBS / "gradient_tape.py", "--steps", STEPS, "--losses", path]
            subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=550)
            made[again] = [float(line) for line in path.read_text().splitlines()]
        return made[again]

    return get
