"""`dltune profile` on the jobs of tests/jobs, to its end, and what it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from running import MARK, remaining, with_mark
from tensorflows import OTHER_PYTHON, ROOT

from dltune.schemas import profile as documents
from dltune.schemas.profile import Profile

JOBS = ROOT / "tests" / "jobs"
PYTHON = sys.executable

JOBS_THAT_WORK: dict[str, list[object]] = {
    "keras_fit": [PYTHON, JOBS / "keras_fit.py"],
    "steps_per_execution": [PYTHON, JOBS / "keras_fit.py", "--steps-per-execution", 4],
    "validation_first": [PYTHON, JOBS / "keras_fit.py", "--validate-first"],
    "gradient_tape": [PYTHON, JOBS / "gradient_tape.py"],
    "eigen": ["env", "TF_ENABLE_ONEDNN_OPTS=0", PYTHON, JOBS / "gradient_tape.py"],
    "gan": [PYTHON, JOBS / "gan.py"],
    "v1_session": [PYTHON, JOBS / "v1_session.py"],
    "multiprocessing": [PYTHON, JOBS / "multiprocessing_helpers.py"],
    "tfdata_workers": [PYTHON, JOBS / "tfdata_workers.py"],
    "own_threads": [PYTHON, JOBS / "own_threads.py"],
    "module": [PYTHON, "-m", "module_job"],
    "shell": ["sh", JOBS / "shell_job.sh"],
    "other_environment": [OTHER_PYTHON, JOBS / "gradient_tape.py"],
}


@dataclass
class Done:
    """A dltune that has ended, and the file that it was to write."""

    code: int
    stdout: str
    stderr: str
    output: Path

    @property
    def said(self) -> str:
        """Its last words: the line that tells why, and what to do."""
        lines = self.stderr.splitlines()
        start = max(i for i, line in enumerate(lines) if line.startswith("dltune: "))
        return "\n".join(lines[start:])

    @property
    def profile(self) -> Profile:
        assert self.code == 0, self.stderr
        return documents.load(self.output)

    def wrote_nothing(self) -> bool:
        """No profile, no claim, nothing half-written."""
        return not list(self.output.parent.iterdir())


def command(output: Path, job: Sequence[object], *options: object) -> list[str]:
    arguments = ["profile", "--steps", 3, *options, "-o", output, "--", *job]
    return [PYTHON, "-m", "dltune", *map(str, arguments)]


def profile(
    folder: Path, job: Sequence[object], *options: object, cwd: Path | None = None, **env: str
) -> Done:
    """Run `dltune profile` to its end. Nothing of the job may be left then."""
    output = folder / "out" / "profile.json"
    output.parent.mkdir(exist_ok=True)
    mark = str(uuid.uuid4())
    done = subprocess.run(
        command(output, job, *options),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=550,
        cwd=cwd,
        env={**os.environ, MARK: mark, **env},
    )
    assert not remaining(with_mark, mark)
    assert not list(output.parent.glob(".*")), "a claim or half a profile is left"
    return Done(done.returncode, done.stdout, done.stderr, output)


def start(
    output: Path, mark: str, phase: str, job: Sequence[object], *options: object
) -> subprocess.Popen[bytes]:
    """A dltune that has just said that it is in `phase`. What it says and prints is in the files
    `said` and `printed` beside its output."""
    said = output.parent / "said"
    with open(said, "wb") as file, open(output.parent / "printed", "wb") as printed:
        running = subprocess.Popen(
            command(output, job, *options),
            stdout=printed,
            stderr=file,
            env={**os.environ, MARK: mark},
        )
    until = time.monotonic() + 240
    while f"dltune: {phase}" not in said.read_text():
        assert running.poll() is None, said.read_text()
        assert time.monotonic() < until
        time.sleep(0.05)
    return running


def profile_of_one_that_dies(folder: Path, job: Sequence[object]) -> Done:
    """Of a job that dies once there is the file `enough` in the folder: as the climb begins."""
    mark = str(uuid.uuid4())
    output = folder / "profile.json"
    running = start(output, mark, "trying thread counts", job)
    (folder / "enough").touch()
    running.wait(timeout=240)
    assert not remaining(with_mark, mark)
    assert not list(folder.glob(".*")), "a claim or half a profile is left"
    return Done(
        running.returncode,
        (folder / "printed").read_text(),
        (folder / "said").read_text(),
        output,
    )
