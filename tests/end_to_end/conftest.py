"""What several files ask of the same jobs: each is run once."""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
from collections.abc import Callable

import pytest
from profiled_jobs import JOBS, JOBS_THAT_WORK, PYTHON, Done, profile
from tensorflows import MISSING, OTHER_PYTHON

# more than a job trains until a plan is enforced, or a test has seen enough
STEPS = 300


@pytest.fixture(scope="session")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Done]:
    """The profile of each kind of job, made once, by whichever worker asks first."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def get(name: str) -> Done:
        if name == "other_environment" and not OTHER_PYTHON.exists():
            pytest.skip(MISSING)
        folder = shared / f"profiled-{name}"
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = folder / "done"
            if not kept.exists():
                done = profile(folder, JOBS_THAT_WORK[name], cwd=JOBS, PYTHON=PYTHON)
                kept.write_bytes(pickle.dumps(done))
            return pickle.loads(kept.read_bytes())

    return get


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[float]]:
    """`plain(again=0)`: the losses of gradient_tape.py by itself, in one run and in another."""
    made: dict[int, list[float]] = {}

    def get(again: int = 0) -> list[float]:
        if again not in made:
            path = tmp_path_factory.mktemp("plain") / "losses"
            command = [PYTHON, JOBS / "gradient_tape.py", "--steps", STEPS, "--losses", path]
            subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=240)
            made[again] = [float(line) for line in path.read_text().splitlines()]
        return made[again]

    return get
