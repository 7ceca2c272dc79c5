"""The job that runs a profile's ops standalone, to be profiled like any other."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dltune.base.errors import UsageError
from dltune.profile.standalone import task as tasks
from dltune.schemas import profile as documents
from dltune.schemas.profile import Profile
from dltune.system.memory import free_bytes


@dataclass(frozen=True)
class StandaloneJob:
    source: Path
    task: tasks.Task
    command: tuple[str, ...]
    done: Path

    def annotated(self, profile: Profile) -> Profile:
        """`profile`, with notes on what ran and what was left out."""
        left = tasks.load_done(self.done).left if self.done.exists() else {}
        notes = tasks.notes(self.task, left, (op.key for op in profile.ops if op.times))
        first = f"the ops of {self.source} ran standalone, one at a time, outside the job"
        return msgspec.structs.replace(profile, notes=(*profile.notes, first, *notes))


@contextlib.contextmanager
def standalone_job(source: Path, batches: Sequence[int]) -> Iterator[StandaloneJob]:
    """A job of the ops of the profile at `source`, at these batch sizes (none: as measured).

    Raises UsageError when the profile has no ops to run, when the largest does not fit into the
    memory that is free, or when TensorFlow is missing here.
    """
    task = tasks.task(documents.load(source), batches)
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            "running ops standalone needs TensorFlow in dltune's Python environment",
            remedy="pip install 'dltune[tensorflow]'",
        )
    require_memory(task, free_bytes()[0])
    with tempfile.TemporaryDirectory(prefix="dltune-") as folder:
        wanted, done = Path(folder) / "task.json", Path(folder) / "done.json"
        wanted.write_bytes(msgspec.json.encode(task))
        command = (
            sys.executable,
            "-m",
            "dltune.frameworks.tensorflow.standalone",
            str(wanted),
            str(done),
        )
        yield StandaloneJob(source, task, command, done)


def require_memory(task: tasks.Task, available: int) -> None:
    """Raises UsageError when the largest op needs more than `available` bytes."""
    needed, key = task.memory()
    if needed > available:
        raise UsageError(
            f"{key} needs about {needed / 2**30:.1f} GiB to run standalone, but only "
            f"{available / 2**30:.1f} GiB are free",
            remedy="use smaller batch sizes (--batch)",
        )
