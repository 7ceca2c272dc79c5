"""Two revisions of a project, measured in turns on one machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.gate import result, where, whole, worktrees
from dltune.gate.config import PYPROJECT, Config, load
from dltune.gate.measure import Measurement, measure
from dltune.gate.side import in_checkout, require_on_path, require_own_files, with_program
from dltune.schemas import gate as doc
from dltune.schemas.machine import Machine


def configuration(here: Path, path: Path | None) -> Config:
    """The configuration at `path`, of the folder `here`, or of the top of its repository."""
    if path is None and not (here / PYPROJECT).exists():
        with contextlib.suppress(UsageError):  # outside of a repository there is only this folder
            here = worktrees.repository(here).top
    return load(here, path)


def ab(
    here: Path,
    base: str,
    command: Sequence[str],
    config: Config,
    machine: Machine,
    *,
    tell: Callable[[str], None],
) -> tuple[doc.Result, Measurement]:
    """Measure `command` at the revision `base` and at HEAD, each in a checkout of its own.

    The checkouts are removed afterwards whatever happens. Raises UsageError when the base does not
    exist, the work tree has changes, a build or the command fails.
    """
    began = time.monotonic()
    if not command:
        raise UsageError(
            "no command to measure",
            remedy="add it after --: dltune gate ab --base main -- python train.py",
        )
    require_on_path(command[0])
    repo = worktrees.repository(here)
    revisions = {"base": base, "head": "HEAD"}
    commits = {name: worktrees.commit_of(repo, at) for name, at in revisions.items()}
    worktrees.require_clean(repo)
    require_own_files(repo, command)
    with worktrees.checkouts(repo, commits) as checkouts:
        both = [
            in_checkout(name, revision, checkouts[name], command)
            for name, revision in revisions.items()
        ]
        if config.build is not None:
            for side in both:
                tell(f"building {side.title}")
                whole.build(side, config.build, config.timeout)
        both = [with_program(side, here) for side in both]
        made = measure(both, machine, config, tell=tell)
        slower: tuple[doc.Slower, ...] = ()
        if where.asked(made.verdicts):
            tops = {name: checkout.top for name, checkout in checkouts.items()}
            changed = worktrees.changed(repo, commits["base"], commits["head"])
            slower, notes = where.look(tops, changed, made, machine, config, tell=tell)
            made.notes += notes
    if commits["base"] == commits["head"]:
        made.notes.append("base and HEAD are the same commit: any difference is noise")
    found = result.result(
        made,
        machine=machine,
        command=command,
        base=doc.Revision(base, commits["base"]),
        head=doc.Revision("HEAD", commits["head"]),
        config=config,
        seconds=time.monotonic() - began,
        slower=slower,
    )
    return found, made
