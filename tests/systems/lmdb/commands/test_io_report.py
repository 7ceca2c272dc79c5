"""`dltune io-report`, as people call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import overwriting
import pytest
from terminal import on_a_terminal

from dltune.base.documents import struct_faults
from dltune.schemas import io

# it goes on until its parent, which watches it, has seen its file: a watch holds that open
JOB = """
import contextlib, os, sys, time
def seen():
    held = f"/proc/{os.getppid()}/fd"
    with contextlib.suppress(OSError):
        return any(os.path.samefile(f"{held}/{one}", sys.argv[1]) for one in os.listdir(held))
fd = os.open(sys.argv[1], os.O_RDONLY)
print("a line of the job's own", flush=True)
end = time.time() + float(sys.argv[2])
while time.time() < end or (time.time() < end + 240 and not seen()):
    for at in range(0, 16 << 20, 1 << 20):
        os.pread(fd, 1 << 20, at)
        time.sleep(0.002)
sys.exit(int(sys.argv[3]))
"""


def dltune(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "io-report", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,  # type: ignore[call-overload]
    )


def job(path: Path, seconds: float = 2.0, code: int = 0) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", JOB, str(path), str(seconds), str(code))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shard.bin"
    path.write_bytes(os.urandom(1 << 20) * 16)
    return path


def test_a_job_is_watched_to_its_end(file, tmp_path):
    kept = tmp_path / "io.json"
    done = dltune("-o", kept, "--json", *job(file))
    assert done.returncode == 0, done.stderr
    document = msgspec.json.decode(done.stdout, type=io.Io)
    assert struct_faults("", document) == []
    assert io.load(kept) == document
    assert document.watch is not None
    assert [f.path for f in document.watch.files] == [str(file)]
    assert document.partial is None
    # the job's own output leaves stdout to the report
    assert "a line of the job's own" in done.stderr


def test_tables_for_people(file, started):
    reads = JOB.replace("a line of the job's own", "ready")
    reading = started(reads, file, 600, 0)
    done = dltune("--pid", reading.pid, "--seconds", 1)
    assert done.returncode == 0, done.stderr
    assert "shard.bin" in done.stdout
    assert "findings" in done.stdout
    assert "overhead of the watch: " in done.stdout


def test_the_jobs_exit_code_is_passed_on(file):
    done = dltune(*job(file, 0.5, 7))
    assert done.returncode == 7
    assert "the job ended with exit code 7; the report is still valid" in done.stderr
    assert "findings" in done.stdout


def test_a_process_that_runs(file, started):
    other = started(JOB.replace("a line of the job's own", "ready"), file, 600, 0)
    done = dltune("--pid", other.pid, "--seconds", 1, "--json")
    assert other.poll() is None
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["subject"] == f"pid {other.pid}"


def test_a_file_without_a_job(file):
    done = dltune("--file", file, "--readers", "1,2", "--seconds", 3)
    assert done.returncode == 0, done.stderr
    assert "ways to read 16 MiB of shard.bin" in done.stderr
    assert "several readers, which take the records in turn" in done.stdout
    assert "the fastest reading was " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give exactly one of: a command after --, --pid, --file"),
        (("--pid", 1, "--file", "x"), "give exactly one of: a command after --, --pid, --file"),
        (("--file", "missing"), "cannot read missing: No such file"),
        (("--file", "."), ". is a folder"),
        (
            ("--file", "missing", "--readers", "1,zero"),
            "--readers '1,zero' must be a comma-separated list of numbers",
        ),
        (
            ("--file", "missing", "--readers", "0"),
            "--readers '0' must be a comma-separated list of numbers",
        ),
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


def test_an_output_that_exists_is_refused_before_the_job_starts(file, tmp_path):
    (tmp_path / "io.json").write_text("mine")
    done = dltune("-o", tmp_path / "io.json", *job(file))
    assert done.returncode == 2
    assert "a line of the job's own" not in done.stderr
    assert (tmp_path / "io.json").read_text() == "mine"


def test_a_live_view_on_a_terminal_and_a_report_when_it_is_interrupted(file):
    command = [sys.executable, "-m", "dltune", "io-report", "--json", *job(file, 600.0)]
    with on_a_terminal(command) as view:
        view.until(b"data files", b"16 MiB")  # the size of the file, once it was seen
        view.process.send_signal(signal.SIGINT)
        out, shown = view.rest()
    assert view.process.returncode == 0
    assert b"shard.bin" in shown
    document = msgspec.json.decode(out, type=io.Io)
    assert document.watch is not None
    assert document.partial is not None
    assert document.partial.startswith("stopped by SIGINT")


def test_what_is_read_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--file", "FILE", "-o", "FILE")
    overwriting.require_refusal("io-report", arguments, tmp_path, monkeypatch)
