"""`dltune report` as a person meets it: exit codes, what is printed, what is written."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).parents[1] / "report"))

import exhibits

from dltune.schemas.profile import Profile


def dltune(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "report", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    return exhibits.profile()


@pytest.fixture
def folder(tmp_path: Path, profile: Profile) -> Path:
    plan = exhibits.plan(profile)
    (tmp_path / "profile.json").write_bytes(msgspec.json.encode(profile))
    (tmp_path / "plan.json.gz").write_bytes(gzip.compress(msgspec.json.encode(plan)))
    return tmp_path


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"profile.json", "plan.json.gz"}


def test_a_page_by_default(folder: Path) -> None:
    done = dltune(folder, "profile.json", "plan.json.gz")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("written to report.html: ")
    assert left(folder) == {"report.html"}
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    again = dltune(folder, "profile.json")
    assert again.returncode == 2
    assert "report.html already exists" in again.stderr
    assert dltune(folder, "profile.json", "--overwrite").returncode == 0


def test_timelines_alone_and_with_the_page(folder: Path) -> None:
    done = dltune(folder, "profile.json", "--perfetto", "trace.json.gz")
    assert done.returncode == 0, done.stderr
    assert left(folder) == {"trace.json.gz"}
    assert json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    both = dltune(folder, "profile.json", "--perfetto", "b.json.gz", "-o", "b.html")
    assert both.returncode == 0, both.stderr
    assert left(folder) == {"trace.json.gz", "b.json.gz", "b.html"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument"),
        (("missing.json",), "cannot read missing.json"),
        (("profile.json", "profile.json"), "profile.json is named twice"),
        (("profile.json", "-o", "profile.json"), "is both input and output"),
        (("profile.json", "-o", "x", "--perfetto", "x"), "name the same file"),
        (("profile.json", "-o", "missing/x.html"), "cannot write"),
        (("plan.json.gz", "--perfetto", "x.json.gz"), "there is no timeline"),
        (("plan.json.gz", "-o", "."), "is a folder"),
    ],
)
def test_wrong_use(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = dltune(folder, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert left(folder) == set()


def test_faults_of_a_document_are_listed(folder: Path, profile: Profile) -> None:
    op = msgspec.structs.replace(profile.ops[0], count=-1)
    broken = msgspec.structs.replace(profile, ops=(op, *profile.ops[1:]))
    (folder / "profile.json").write_bytes(msgspec.json.encode(broken))
    done = dltune(folder, "profile.json")
    assert done.returncode == 2
    assert "ops[0]" in done.stderr
    assert left(folder) == set()


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    """A limit on the size of files stands for the disk: writing fails half-way."""

    def limited() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    done = subprocess.run(
        [sys.executable, "-B", "-m", "dltune", "report", "profile.json"],
        capture_output=True,
        text=True,
        cwd=folder,
        preexec_fn=limited,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot write report.html: File too large" in done.stderr
    assert left(folder) == set()
