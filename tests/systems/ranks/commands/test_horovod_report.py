"""`dltune horovod-report`, as people call it, on ranks that start in a moment."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import overwriting
import pretended_ranks
import pytest
from pretended_ranks import started
from terminal import on_a_terminal

from dltune.base.documents import struct_faults
from dltune.systems.ranks.horovod import schema

TIMELINE = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "gradient"}},
{"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1},
{"ph": "X", "name": "0", "ts": 10, "pid": 1, "dur": 0},
{"ph": "X", "name": "1", "ts": 2010, "pid": 1, "dur": 0},
{"ph": "E", "ts": 2020, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 2030, "pid": 1},
{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 2040, "pid": 1},
{"ph": "E", "ts": 2140, "pid": 1},
{"ph": "E", "ts": 2150, "pid": 1, "args": {"dtype": "float32", "shape": "[4, 8]"}},
"""


REPORT = (sys.executable, "-m", "dltune", "horovod-report")


def dltune(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REPORT, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,  # type: ignore[call-overload]
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretended_ranks.build(tmp_path_factory.mktemp("horovod"))


def job(library: Path, body: str, other: str | None = None) -> list[str]:
    """Two ranks."""
    ranks = [pretended_ranks.command(library, text) for text in (body, other or body)]
    return ["--", *pretended_ranks.launcher(*ranks)]


def to_its_end(library: Path, folder: Path, *options: object) -> tuple[bytes, str]:
    """dltune's stdout and what it showed, of a job of two ranks that end well once it has seen
    both background threads, however long that takes it."""
    seen = folder / "seen"
    command = [*REPORT, *map(str, options), *job(library, f"until({str(seen)!r})")]
    with on_a_terminal(command) as view:
        view.until(b"2 background threads found")
        seen.touch()
        out, shown = view.rest()
    assert view.process.returncode == 0, shown
    return out, shown.decode(errors="replace")


def of_rank(rank: pretended_ranks.Rank, *options: object) -> str:
    """dltune's stdout, of a running rank that it watches until it has seen the background
    thread."""
    command = [*REPORT, "--pid", str(rank.pid), "--seconds", "600", *map(str, options)]
    with on_a_terminal(command) as view:
        view.until(b"1 background thread found")
        view.process.send_signal(signal.SIGINT)
        out, shown = view.rest()
    assert view.process.returncode == 0, shown
    return out.decode()


def test_a_job_is_watched_to_its_end(library, tmp_path):
    kept = tmp_path / "horovod.json"
    out, shown = to_its_end(library, tmp_path, "-o", kept, "--json")
    report = msgspec.json.decode(out, type=schema.Horovod)
    assert struct_faults("", report) == []
    assert schema.load(kept) == report
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert [rank.ended for rank in report.ranks] == [0, 0]
    # the ranks' own output leaves stdout to the report, and tells their background threads
    told = set(map(int, re.findall(r"ready (\d+) \d+", shown)))
    assert {rank.background for rank in report.ranks} == told
    assert not report.partial


def test_tables_for_people(library):
    with started(library, rank=0, size=1) as rank:
        out = of_rank(rank)
    assert "\nfindings\n" in out
    assert f"{rank.background}  background" in out
    assert "overhead of the watch: " in out


def test_the_jobs_exit_code_is_passed_on_with_who_failed_first(library, tmp_path):
    # rank 0 ends once dltune shows that rank 1 has ended
    seen, ended = tmp_path / "seen", tmp_path / "noted"
    fails = f"until({str(seen)!r})\nsys.exit(7)"
    follows = f"until({str(ended)!r})\nsys.exit(1)"
    with on_a_terminal([*REPORT, *job(library, follows, fails)]) as view:
        view.until(b"2 background threads found")
        seen.touch()
        view.until(b" ended")
        ended.touch()
        out, shown = view.rest()
    assert view.process.returncode == 1
    assert b"the job ended with exit code 1; the report is still valid" in shown
    assert b"Rank 1 failed first, and the others followed" in out
    assert b"ended with exit code 7" in out


def test_a_job_that_fails_before_any_rank_keeps_its_exit_code():
    done = dltune("--", sys.executable, "-c", "import time; time.sleep(0.5); raise SystemExit(5)")
    assert done.returncode == 5
    assert "the job ended with exit code 5; no rank was found" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_without_horovod():
    done = dltune("--", sys.executable, "-c", "import time; time.sleep(1)")
    assert done.returncode == 2
    assert "loaded neither Horovod nor PyTorch as one of several ranks" in done.stderr


def test_a_job_whose_horovod_cannot_be_imported(tmp_path):
    """As Horovod says it when it was built without TensorFlow."""
    package = tmp_path / "horovod"
    (package / "tensorflow").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "tensorflow" / "__init__.py").write_text(
        "raise ImportError('Extension horovod.tensorflow has not been built')"
    )
    done = dltune(
        "--",
        *(sys.executable, "-c", "import horovod.tensorflow"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "the job cannot import horovod.tensorflow" in done.stderr
    assert "Extension horovod.tensorflow has not been built" in done.stderr
    assert "HOROVOD_WITH_TENSORFLOW=1 pip install" in done.stderr


def test_a_watch_that_is_interrupted_reports_what_it_saw(library):
    with on_a_terminal([*REPORT, "--json", *job(library, "time.sleep(600)")]) as view:
        view.until(b"2 background threads found")
        view.process.send_signal(signal.SIGINT)
        out, _ = view.rest()
    assert view.process.returncode == 0
    report = msgspec.json.decode(out, type=schema.Horovod)
    assert report.partial
    assert len(report.ranks) == 2


def test_a_timeline_alone(tmp_path):
    file = tmp_path / "timeline.json"
    file.write_text(TIMELINE)
    done = dltune("--timeline", file, "--json")
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode(done.stdout, type=schema.Horovod)
    assert report.ranks == ()
    assert report.timeline is not None
    assert [tensor.name for tensor in report.timeline.tensors] == ["gradient"]
    assert report.timeline.controller == "gloo"


def test_what_was_watched_stands_without_the_timeline(library, tmp_path):
    """These ranks write none, and another job's does not stand for theirs."""
    file, kept = tmp_path / "timeline.json", tmp_path / "report.json"
    file.write_text(TIMELINE)
    asked = ("--timeline", file, "-o", kept)
    refused = dltune(*asked, *job(library, "pass"))
    assert refused.returncode == 2
    assert f"{file} already exists" in refused.stderr
    _, shown = to_its_end(library, tmp_path, *asked, "--overwrite")
    assert f"the report has no timeline: cannot read {file}" in shown
    report = schema.load(kept)
    assert len(report.ranks) == 2
    assert report.timeline is None


def test_a_timeline_that_is_cut_off(tmp_path):
    file = tmp_path / "timeline.json"
    file.write_text(TIMELINE + '{"ph": "B", "name": "NEGO')
    done = dltune("--timeline", file)
    assert done.returncode == 0, done.stderr
    assert "The timeline ends in the middle of a record" in done.stdout


def test_reports_of_two_hosts_in_one(library, tmp_path):
    files = []
    for number in (0, 1):
        files.append(tmp_path / f"host{number}.json")
        with started(library, rank=number) as rank:
            done = dltune("--pid", rank.pid, "--seconds", 1.5, "-o", files[-1])
        assert done.returncode == 0, done.stderr
        assert "1 of 2 ranks are not in this report" in done.stdout
    whole = tmp_path / "all.json"
    done = dltune("--merge", *files, "-o", whole)
    assert done.returncode == 0, done.stderr
    assert "are not in this report" not in done.stdout
    assert [rank.rank for rank in schema.load(whole).ranks] == [0, 1]

    twice = dltune("--merge", files[0], whole)
    assert twice.returncode == 2
    assert f"rank 0 is in both {files[0]} and {whole}" in twice.stderr


def test_a_report_is_shown_as_html_and_not_compared(library, tmp_path):
    kept = tmp_path / "horovod.json"
    with started(library, rank=0, size=1) as rank:
        of_rank(rank, "-o", kept)
    page = tmp_path / "page.html"
    shown = subprocess.run(
        [sys.executable, "-m", "dltune", "report", str(kept), "-o", str(page)],
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    text = page.read_text()
    assert "Ranks and their threads" in text
    assert str(rank.background) in text
    compared = subprocess.run(
        [sys.executable, "-m", "dltune", "compare", str(kept), str(kept)],
        capture_output=True,
        text=True,
    )
    assert compared.returncode == 2
    assert "is a 'dltune.horovod' document, which cannot be compared" in compared.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give exactly one of: a command after --, --pid, --merge"),
        (("--pid", 1, "--", "true"), "give exactly one of: "),
        (("--merge", "one.json"), "--merge needs at least two reports"),
        (("--merge", "a.json", "b.json"), "cannot read a.json: No such file"),
        (("--timeline", "missing.json"), "cannot read missing.json: No such file"),
        (("--", "no-such-command-here"), "command not found: no-such-command-here"),
    ],
)
def test_wrong_use(tmp_path, arguments, sentence):
    done = dltune(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_no_such_process():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    done = dltune("--pid", gone.pid)
    assert done.returncode == 2
    assert f"there is no process {gone.pid}" in done.stderr


def test_an_output_that_exists_is_refused_before_the_job_starts(library, tmp_path):
    (tmp_path / "horovod.json").write_text("mine")
    done = dltune("-o", tmp_path / "horovod.json", *job(library, "pass"))
    assert done.returncode == 2
    assert not any(line.startswith("ready") for line in done.stderr.splitlines())
    assert (tmp_path / "horovod.json").read_text() == "mine"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_users_rank(library):
    # this Python's files may be root's alone: they are read before
    code = (
        "import os, sys, dltune.systems.ranks.commands\n"
        "import dltune.systems.ranks.commands, dltune.systems.ranks.horovod.view\n"
        "import dltune.base.documents, dltune.cli.terminal, dltune.cli.terminal\n"
        "import dltune.systems.ranks.horovod.watch.document, dltune.system.proc.stat\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "from dltune.cli import main\n"
        "sys.argv = ['dltune', 'horovod-report', '--pid', sys.argv[1], '--seconds', '2']\n"
        "main()\n"
    )
    with started(library, rank=0, size=1) as rank:
        done = subprocess.run(
            [sys.executable, "-c", code, str(rank.pid)], capture_output=True, text=True, timeout=240
        )
    assert done.returncode == 2
    assert f"pid {rank.pid} belongs to root" in done.stderr
    assert "run dltune horovod-report as root" in done.stderr


def test_the_live_view_on_a_terminal(library):
    with started(library, rank=0, size=1) as rank:
        command = (*REPORT, "--pid", str(rank.pid), "--seconds", "600", "--json")
        with on_a_terminal(command) as view:
            view.until(b"1 background thread found")
            view.process.send_signal(signal.SIGINT)
            out, shown = view.rest()
    assert view.process.returncode == 0
    assert b"background" in shown
    assert str(rank.background).encode() in shown
    assert json.loads(out)["ranks"][0]["background"] == rank.background


@pytest.mark.parametrize(
    "arguments",
    [
        ("--merge", "FILE", "other.json", "-o", "FILE"),
        ("--timeline", "FILE", "-o", "FILE", "--", "true"),
    ],
)
def test_what_is_read_is_not_written_over(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwriting.require_refusal("horovod-report", arguments, tmp_path, monkeypatch)
