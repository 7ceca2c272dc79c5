"""git in a folder, whoever runs the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    """What git said. Raises subprocess.CalledProcessError when it failed."""
    return subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", folder, *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
