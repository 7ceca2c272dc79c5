"""A command of dltune's own as several ranks on this machine, which end together."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job import ranks
from dltune.job.failures import last_words


def run(
    folder: Path,
    count: int,
    command: Sequence[str],
    undone: str,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the output of rank 0 on both streams; the logs of all are left in `folder`. Raises
    UsageError when one fails: `undone` names the failed task, and the first word of `command` is a
    Python."""
    with open(ranks.log(folder, 0), "wb") as said:
        done = subprocess.run(
            ranks.started(range(count), count, command),
            env={**os.environ, **(environment or {}), ranks.FOLDER: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        rank, _ = ranks.first_failed(folder) or (0, 0)
        words = last_words(ranks.log(folder, rank), f"rank {rank}")
        raise UsageError(
            f"{undone} with {command[0]}; {words}",
            remedy=f"install JAX for {command[0]}: pip install 'dltune[jax]'",
        )
    return ranks.log(folder, 0).read_text(errors="replace")
