"""Jobs under settings of the bootstrap's, and what their hooks told."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from dltune.job import protocol
from dltune.job.launch import Job

JOBS = Path(__file__).parent / "jobs"


def told(
    script: Path,
    settings: Mapping[str, str],
    *arguments: object,
    python: str = sys.executable,
    **environment: str,
) -> dict[str, protocol.Setting]:
    """Run `script` to its end by `python`; the last message of each setting."""
    last: dict[str, protocol.Setting] = {}
    job = Job(
        [python, str(script), *map(str, arguments)],
        answer=lambda _: {"plugin": False, "settings": dict(settings)},
        environment={"TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )
    with job:
        for event in job.events(1.0):
            if event and isinstance(event.message, protocol.Setting):
                last[event.message.setting] = event.message
    assert job.exit_code == 0
    return last
