"""The same command in two checkouts, so that each runs its own code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from dltune.errors import UsageError
from dltune.gate import worktrees
from dltune.gate.side import Side
from dltune.gate.worktrees import Checkout, Repository
from dltune.visible import visible

# a project's packages stand in its top folder or here
SOURCE = "src"


def require_own_files(repo: Repository, command: Sequence[str]) -> None:
    """Raises UsageError when an argument names a file of the repository absolutely: both sides
    would run that one file."""
    for argument in command:
        value = argument.rpartition("=")[2]
        path = Path(value)
        if path.is_absolute() and path.exists() and worktrees.tracked(repo, path):
            raise UsageError(
                f"{visible(argument)} names this checkout's file: base and head would both run it",
                remedy="name it relative to this folder",
            )


def side(name: str, revision: str, checkout: Checkout, command: Sequence[str], here: Path) -> Side:
    """The command in a checkout. Raises UsageError when there is no such program.

    PYTHONPATH begins with the checkout, so that its packages come before an installed copy; a
    program by a relative path that the checkout lacks, such as .venv/bin/python, is `here`'s.
    """
    paths = [checkout.top / SOURCE, checkout.top]
    own = [str(path) for path in paths if path.is_dir()]
    short = checkout.commit[:10]
    named = "" if checkout.commit.startswith(revision) else f"{visible(revision, 60)}, "
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return Side(
        name=name,
        title=f"{name} ({named}{short})",
        command=[_program(command[0], checkout.folder, here), *command[1:]],
        folder=checkout.folder,
        environment={
            "PYTHONPATH": os.pathsep.join([*own, *inherited]),
            "TMPDIR": str(checkout.temporary),  # a job that is ended leaves its temporary files
        },
    )


def _program(program: str, folder: Path, here: Path) -> str:
    if os.sep not in program:
        if shutil.which(program) is None:
            raise UsageError(f"command not found: {visible(program)}")
        return program
    found = [path for path in (folder / program, here / program) if path.exists()]
    if not found:
        raise UsageError(f"command not found: {visible(program)}, neither in {folder} nor here")
    if not os.access(found[0], os.X_OK) or found[0].is_dir():
        raise UsageError(
            f"cannot start {visible(program)}: it is not executable",
            remedy="name the interpreter too, as in: -- python train.py",
        )
    return str(found[0])
