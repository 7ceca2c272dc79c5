"""Checkouts of two revisions, and that nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dltune.base.errors import UsageError
from dltune.gate import checkouts
from dltune.gate.checkouts import in_checkout, require_on_path, require_own_files, with_program


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where checkouts are made, so that what stays is seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def commits(repo: checkouts.Repository) -> dict[str, str]:
    return {
        name: checkouts.commit_of(repo, ref) for name, ref in (("base", "base"), ("head", "HEAD"))
    }


def test_each_side_has_its_revision_and_nothing_stays(
    project: Path, git: Callable[..., str], temporary: Path
) -> None:
    repo = checkouts.repository(project / "inner")
    with checkouts.checkouts(repo, commits(repo)) as found:
        assert "base" in (found["base"].top / "job.py").read_text()
        assert "head" in (found["head"].top / "job.py").read_text()
        assert found["base"].folder == found["base"].top / "inner"
        # a build may leave folders that nobody may write to
        locked = found["base"].top / "made"
        locked.mkdir()
        (locked / "file").write_text("")
        locked.chmod(0o500)
    assert not list(temporary.iterdir())
    assert git("worktree", "list").count("\n") == 1


def test_nothing_stays_after_an_error(
    project: Path, git: Callable[..., str], temporary: Path
) -> None:
    repo = checkouts.repository(project)
    with pytest.raises(KeyboardInterrupt), checkouts.checkouts(repo, commits(repo)):
        raise KeyboardInterrupt
    assert not list(temporary.iterdir())
    assert git("worktree", "list").count("\n") == 1


def test_what_a_killed_gate_left_is_removed_by_the_next(
    project: Path, git: Callable[..., str], temporary: Path
) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom dltune.gate import checkouts\n"
        f"repo = checkouts.repository(Path({str(project)!r}))\n"
        "commit = checkouts.commit_of(repo, 'base')\n"
        "with checkouts.checkouts(repo, {'base': commit}):\n"
        "    print('ready', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        repo = checkouts.repository(project)
        with checkouts.checkouts(repo, commits(repo)):
            assert len(list(temporary.iterdir())) == 2  # it is alive: its checkout is left alone
        os.kill(child.pid, signal.SIGKILL)
    assert len(list(temporary.iterdir())) == 1
    with checkouts.checkouts(repo, commits(repo)):
        assert len(list(temporary.iterdir())) == 1
    assert git("worktree", "list").count("\n") == 1


def test_a_work_tree_that_only_is_called_like_ours_stays(
    project: Path, git: Callable[..., str], tmp_path: Path
) -> None:
    mine = tmp_path / f"{checkouts.PREFIX}of-mine" / "tree"
    git("worktree", "add", "-q", str(mine), "base")
    (mine / "unsaved").write_text("work")
    repo = checkouts.repository(project)
    with checkouts.checkouts(repo, commits(repo)):
        pass
    assert (mine / "unsaved").read_text() == "work"
    assert str(mine) in git("worktree", "list")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_the_whole_command_leave_nothing(
    project: Path, git: Callable[..., str], temporary: Path, number: int
) -> None:
    mark = project.parent / "started"
    slow = f"import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep(600)"
    command = [sys.executable, "-m", "dltune", "gate", "ab", "--base", "base"]
    with subprocess.Popen(
        [*command, "--", sys.executable, "-c", slow],
        cwd=project, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        while not mark.exists() and child.poll() is None:
            time.sleep(0.05)
        beside = list(temporary.glob("dltune-gate-log-*"))
        child.send_signal(number)
        _, stderr = child.communicate(timeout=240)
    assert child.returncode == 128 + number, stderr
    assert beside == [], "a killed gate's log would outlive its checkouts"
    assert not list(temporary.iterdir())
    assert git("worktree", "list").count("\n") == 1


@pytest.mark.parametrize("revision", ["nowhere", "", "--help", "main..base", "HEAD^{tree}", "\x1b"])
def test_a_revision_that_is_none(project: Path, revision: str) -> None:
    with pytest.raises(UsageError, match="there is no revision") as caught:
        checkouts.commit_of(checkouts.repository(project), revision)
    assert "\x1b" not in str(caught.value)


def test_the_cause_is_told_beside_what_git_could_not_do(
    project: Path, git: Callable[..., str]
) -> None:
    """As on a full disk: git's first error, and its last."""
    hooks = project / ".git" / "hooks"
    git("config", "core.hooksPath", str(hooks))
    hook = hooks / "post-checkout"
    hook.write_text(
        "#!/bin/sh\necho error: unable to write file >&2\necho fatal: gave up >&2\nexit 1\n"
    )
    hook.chmod(0o755)
    repo = checkouts.repository(project)
    told = "git cannot check out .*: error: unable to write file; fatal: gave up"
    with pytest.raises(UsageError, match=told), checkouts.checkouts(repo, commits(repo)):
        pass


def test_a_shallow_clone_is_told(project: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", f"file://{project}", tmp_path / "shallow"],
        check=True,
    )
    with pytest.raises(UsageError) as caught:
        checkouts.commit_of(checkouts.repository(tmp_path / "shallow"), "HEAD~1")
    assert "shallow" in (caught.value.remedy or "")


def test_a_dirty_work_tree_is_refused(project: Path) -> None:
    repo = checkouts.repository(project)
    (project / "new.txt").write_text("in no commit, but not known to git either")
    checkouts.require_clean(repo)
    (project / "job.py").write_text("changed")
    with pytest.raises(UsageError, match=r"uncommitted changes: job\.py"):
        checkouts.require_clean(repo)


def test_a_folder_that_one_revision_lacks(project: Path, git: Callable[..., str]) -> None:
    (project / "later").mkdir()
    (project / "later" / "file").write_text("")
    git("add", ".")
    git("commit", "-qm", "later")
    repo = checkouts.repository(project / "later")
    with (
        pytest.raises(UsageError, match=r"\(base\) has no folder later"),
        checkouts.checkouts(repo, commits(repo)),
    ):
        pass


def test_outside_of_a_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in a git repository"):
        checkouts.repository(tmp_path)


def test_variables_of_a_hook_do_not_lead_elsewhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert checkouts.repository(project).top == project


def test_a_file_of_this_checkout_by_its_whole_name_is_refused(project: Path) -> None:
    repo = checkouts.repository(project)
    require_own_files(repo, ["python", "job.py", "/etc/hostname", "--data=/etc"])
    for argument in (str(project / "job.py"), f"--script={project / 'job.py'}"):
        with pytest.raises(UsageError, match="base and head would run the same file"):
            require_own_files(repo, ["python", argument])


def test_a_side_s_code_comes_first(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    repo = checkouts.repository(project)
    with checkouts.checkouts(repo, commits(repo)) as found:
        top = found["base"].top
        (top / "src").mkdir()
        side = in_checkout("base", "base", found["base"], ["python3", "job.py"])
        assert side.environment["PYTHONPATH"] == f"{top / 'src'}:{top}:/mine"
        inner = checkouts.Checkout(found["base"].commit, top, top / "part", found["base"].temporary)
        (inner.folder / "src").mkdir(parents=True)
        side = in_checkout("base", "base", inner, ["python3", "job.py"])
        paths = [inner.folder / "src", inner.folder, top / "src", top, "/mine"]
        assert side.environment["PYTHONPATH"] == ":".join(map(str, paths))
        (project / "tool").symlink_to(sys.executable)
        side = in_checkout("base", "base", found["base"], ["./tool", "job.py"])
        assert with_program(side, project).command == [str(project / "tool"), "job.py"]
        side = in_checkout("base", "base", found["base"], ["./none"])
        with pytest.raises(UsageError, match="command not found"):
            with_program(side, project)
        with pytest.raises(UsageError, match="command not found"):
            require_on_path("no-such-program-here")
        side = in_checkout("base", "base", found["base"], ["./job.py"])
        with pytest.raises(UsageError, match="is not executable"):
            with_program(side, project)
