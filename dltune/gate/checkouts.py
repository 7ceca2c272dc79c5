"""Two checkouts of a project as git worktrees, and the command that runs in each of them.

`checkouts` makes the worktrees and removes them afterwards, whatever happens. `Side` is one of the
two sides that are compared.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.job.subprocesses import last_lines, python_path
from dltune.turns.rounds import undisturbed

PREFIX = "dltune-gate-"
LOCK = ".alive"
# variables by which git, in a hook or an alias, would be held to another repository
GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


@dataclass(frozen=True)
class Repository:
    """`top`: the folder of the checkout; `inner`: the caller's folder in it."""

    top: Path
    inner: Path


@dataclass(frozen=True)
class Checkout:
    commit: str
    top: Path
    folder: Path  # the counterpart of the caller's folder
    temporary: Path  # for temporary files of the processes there, removed with the checkout


def repository(folder: Path) -> Repository:
    """The repository that `folder` is in. Raises UsageError when there is none."""
    if shutil.which("git") is None:
        raise UsageError("git is not installed", remedy="install git")
    done = _git(folder, "rev-parse", "--show-toplevel")
    if done.returncode:
        raise UsageError(
            f"{folder} is not in a git repository: {_said(done)}",
            remedy="run dltune in the project's folder",
        )
    top = Path(done.stdout.rstrip("\n"))
    return Repository(top, folder.resolve().relative_to(top.resolve()))


def commit_of(repo: Repository, revision: str) -> str:
    """The commit that a name refers to. Raises UsageError when there is none."""
    # an option in disguise must not reach git as one
    done = _git(repo.top, "rev-parse", "--verify", "--quiet", "--end-of-options",
                f"{revision}^{{commit}}")  # fmt: skip
    if done.returncode or not revision.strip():
        shallow = _git(repo.top, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        raise UsageError(
            f"there is no revision {visible(revision)!r} in {repo.top}",
            remedy="fetch the whole history first: this clone is shallow (in CI: fetch-depth: 0)"
            if shallow
            else "check the name with `git log`, or fetch the branch first",
        )
    return done.stdout.split()[-1]


def require_clean(repo: Repository) -> None:
    """Raises UsageError when tracked files differ from the last commit: their content would
    not be in the checkout that is measured."""
    done = _git(repo.top, "status", "--porcelain", "--untracked-files=no")
    if done.returncode:
        raise UsageError(f"git status failed in {repo.top}: {_said(done)}", remedy=None)
    changed = [line[3:] for line in done.stdout.splitlines()]
    if changed:
        names = ", ".join(visible(name, 80) for name in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise UsageError(
            f"the work tree has uncommitted changes: {names}{more}",
            remedy="commit them, or set them aside with `git stash`: only commits are compared",
        )


def tracked(repo: Repository, path: Path) -> bool:
    """True if `path` is a file of the repository."""
    try:
        inside = path.resolve().relative_to(repo.top.resolve())
    except ValueError:
        return False
    done = _git(repo.top, "ls-files", "--error-unmatch", "--", str(inside))
    return done.returncode == 0


def changed(repo: Repository, base: str, head: str) -> frozenset[str]:
    """Files that differ between two commits, named from the top of the repository."""
    return frozenset(_git(repo.top, "diff", "--name-only", "-z", base, head).stdout.split("\0"))


@contextlib.contextmanager
def checkouts(repo: Repository, commits: Mapping[str, str]) -> Iterator[dict[str, Checkout]]:
    """A checkout for each (name, commit), in a folder of temporary files.

    Leaving the block removes them, and the remains of an earlier gate that was killed. Raises
    UsageError when git cannot make one, as on a full disk.
    """
    _sweep(repo)
    try:
        home = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    except OSError as error:
        raise UsageError(
            f"cannot create a folder for two checkouts: {error.strerror}",
            remedy="set TMPDIR to a folder with enough space",
        ) from None
    made: list[Path] = []
    with open(home / LOCK, "w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        try:
            found = {}
            for name, commit in commits.items():
                top = home / name
                made.append(top)
                done = _git(repo.top, "worktree", "add", "--detach", "--force", str(top), commit)
                if done.returncode:
                    raise UsageError(
                        f"git cannot check out {commit[:12]}: {_said(done)}", remedy=None
                    )
                folder = top / repo.inner
                if not folder.is_dir():
                    raise UsageError(
                        f"{commit[:12]} ({name}) has no folder {repo.inner}",
                        remedy="run dltune in a folder that exists in both revisions",
                    )
                temporary = home / f"{name}-temporary"
                temporary.mkdir()
                found[name] = Checkout(commit, top, folder, temporary)
            yield found
        finally:
            _remove(repo, home, made)


@undisturbed()
def _remove(repo: Repository, home: Path, tops: Sequence[Path]) -> None:
    for top in tops:
        _git(repo.top, "worktree", "remove", "--force", "--force", str(top))
    # git leaves files that a build made unwritable
    for folder, _, _ in os.walk(home):
        with contextlib.suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(home, ignore_errors=True)


def _sweep(repo: Repository) -> None:
    """Remove the checkouts of gates that were killed: nobody holds their lock."""
    done = _git(repo.top, "worktree", "list", "--porcelain", "-z")
    homes: dict[Path, list[Path]] = {}
    for line in done.stdout.split("\0"):
        top = Path(line.removeprefix("worktree "))
        if line.startswith("worktree ") and top.parent.name.startswith(PREFIX):
            homes.setdefault(top.parent, []).append(top)
    for home, tops in homes.items():
        try:
            with open(home / LOCK) as alive:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(repo, home, tops)
        except FileNotFoundError:
            if not home.exists():  # else it is none of ours
                _remove(repo, home, tops)
        except OSError:
            continue  # another gate is at work


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in GIT_VARIABLES}
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        env={**inherited, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
        check=False,
    )


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """The first error, which is the cause, and the last, which is what could not be done."""
    lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines()
    lines = [line for line in lines if line.startswith(("error:", "fatal:"))] or lines[-1:]
    ends = dict.fromkeys((lines[0], lines[-1])) if lines else [f"it ended with {done.returncode}"]
    return "; ".join(visible(line, 300) for line in ends)


# The command on each side: how the same command in two checkouts comes to run the code of each

# a project's packages are in its top folder or here
SOURCE = "src"


@dataclass(frozen=True)
class Side:
    """One of the two sides that are compared: a command, the folder it runs in, and its title.

    `name` is "base" or "head"; `title` is for a person, as in "base (main, 1a2b3c4)".
    """

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


def require_own_files(repo: Repository, command: Sequence[str]) -> None:
    """Raises UsageError when an argument names a file of the repository absolutely: both sides
    would run that one file."""
    for argument in command:
        value = argument.rpartition("=")[2]
        path = Path(value)
        if path.is_absolute() and path.exists() and tracked(repo, path):
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
