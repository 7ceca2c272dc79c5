"""One of the two that are compared: a command, where it runs, how to speak of it, and how the same
command in two checkouts comes to run the code of each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.gate import worktrees
from dltune.gate.worktrees import Checkout, Repository
from dltune.job import protocol, rank_layout
from dltune.job.failures import last_lines
from dltune.job.launch import Job, Process, python_path

# a project's packages are in its top folder or here
SOURCE = "src"


@dataclass(frozen=True)
class Side:
    """`name` is "base" or "head"; `title` is for a person, as in "base (main, 1a2b3c4)"."""

    name: str
    title: str
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def temporary(self) -> str | None:
        """Where its temporary files go, which are removed with its checkout; None: the usual."""
        return self.environment.get("TMPDIR")

    def having(self, variables: Mapping[str, str]) -> Side:
        """The same with these variables in addition to its own."""
        return replace(self, environment={**self.environment, **variables})

    def under(self, program: Sequence[str]) -> Side:
        """The same command, started by another one that takes it after "--"."""
        return replace(self, command=[*program, "--", *self.command])

    def start(
        self,
        log: Path,
        *,
        greet: Callable[[Process], list[str]],
        answer: Callable[[protocol.Python], dict[str, object]] = lambda _: {},
    ) -> Job:
        """The command as a job that writes to `log`. Raises as `Job`."""
        command, environment = rank_layout.with_own_port(self.command, self.environment)
        with open(log, "wb") as file:
            return Job(
                command,
                answer=answer,
                greet=greet,
                environment=environment,
                stdout=file.fileno(),
                stderr=file.fileno(),
                folder=self.folder,
            )


def require_own_files(repo: Repository, command: Sequence[str]) -> None:
    """Raises UsageError when an argument names a file of the repository absolutely: both sides
    would run that one file."""
    for argument in command:
        value = argument.rpartition("=")[2]
        path = Path(value)
        if path.is_absolute() and path.exists() and worktrees.tracked(repo, path):
            raise UsageError(
                f"{visible(argument)} is an absolute path: base and head would run the same file",
                remedy="use a path relative to this folder",
            )


def require_on_path(program: str) -> None:
    """Raises UsageError when a program by its name alone is not there; one by a path can still be
    built."""
    if os.sep not in program and shutil.which(program) is None:
        raise UsageError(
            f"command not found: {visible(program)}", remedy="check the name, or install it"
        )


def in_checkout(name: str, revision: str, checkout: Checkout, command: Sequence[str]) -> Side:
    """The command in a checkout.

    PYTHONPATH begins with the folder's counterpart and the checkout's top, so that their packages
    come before an installed copy.
    """
    folders = dict.fromkeys((checkout.folder, checkout.top))
    own = [str(path) for each in folders for path in (each / SOURCE, each) if path.is_dir()]
    short = checkout.commit[:10]
    named = "" if checkout.commit.startswith(revision) else f"{visible(revision, 60)}, "
    return Side(
        name=name,
        title=f"{name} ({named}{short})",
        command=command,
        folder=checkout.folder,
        environment={
            "PYTHONPATH": python_path(*own),
            "TMPDIR": str(checkout.temporary),  # a job that is ended leaves its temporary files
        },
    )


def with_program(side: Side, here: Path) -> Side:
    """A program by a relative path that the checkout lacks, once it is built, such as
    .venv/bin/python, is `here`'s. Raises UsageError when there is no such program."""
    program, *arguments = side.command
    return replace(side, command=[_program(program, side.folder, here), *arguments])


def _program(program: str, folder: Path, here: Path) -> str:
    if os.sep not in program:
        return program
    found = [path for path in (folder / program, here / program) if path.exists()]
    if not found:
        raise UsageError(
            f"command not found: {visible(program)}, neither in {folder} nor in {here}",
            remedy="check the path, or set `build` in the configuration to a command that makes it",
        )
    if not os.access(found[0], os.X_OK) or found[0].is_dir():
        raise UsageError(
            f"cannot start {visible(program)}: it is not executable",
            remedy="start it with its interpreter, for example: -- python train.py",
        )
    return str(found[0])


def _shown(log: Path) -> str:
    """The end of what a command wrote, harmless to a terminal; empty when there is nothing.

    Behind a bar, and with "##[" broken: a CI runner obeys lines that begin with "::", even
    indented, and some that hold "##[".
    """
    lines = (visible(line, 400).replace("##[", "## [") for line in last_lines(log))
    return "\n".join(f"  | {line}" for line in lines)


def blame(
    side: Side, what: str, log: Path | None = None, *, remedy: str | None = None
) -> UsageError:
    """The error of one side, with the last lines that its command wrote to `log`."""
    last = _shown(log) if log else ""
    wrote = f"; its last lines:\n{last}" if last else ""
    return UsageError(f"in {side.title}: {what}{wrote}", remedy=remedy)
