"""Lets tests import `decided`, and gives them small projects under git."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import repository

sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """Runs git in an empty repository at tmp_path / "project", which it makes."""
    top = tmp_path / "project"
    top.mkdir()

    def run(*arguments: str) -> str:
        return repository.git(top, *arguments)

    run("init", "-q", "-b", "main")
    return run


@pytest.fixture
def project(git: Callable[..., str], tmp_path: Path) -> Path:
    """A repository with `job.py`, and a branch `base` a commit before main."""
    top = tmp_path / "project"
    (top / "inner").mkdir()
    (top / "inner" / "kept.txt").write_text("kept")
    (top / "job.py").write_text("print('base')\n")
    git("add", ".")
    git("commit", "-qm", "base")
    git("branch", "base")
    (top / "job.py").write_text("print('head')\n")
    git("commit", "-qam", "head")
    return top
