"""Starting a job, hearing from it, ending all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dltune.base.errors import UsageError
from dltune.job import launch, protocol
from dltune.job.launch import Job


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def wait_for(path: Path, job: Job) -> str:
    """The file's content once the job has written it; interpreters wait until they are heard."""
    until = time.monotonic() + 240
    for _ in job.events(0.02):
        if path.exists() and path.read_text():
            break
        assert time.monotonic() < until, f"{path} did not come"
    return path.read_text()


def drain(job: Job) -> list[protocol.Message]:
    return [event.message for event in job.events(0.1) if event is not None]


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_of_a_job_that_ends(code):
    with Job(python(f"raise SystemExit({code})")) as job:
        drain(job)
        assert job.exit_code == code


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_the_exit_code_of_a_job_that_a_signal_ended_is_as_a_shell_tells_it(number):
    with Job(python(f"import os; os.kill(os.getpid(), {int(number)})")) as job:
        drain(job)
        assert job.exit_code == 128 + number


def test_an_interpreter_reports_in_and_hears_the_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1")
    heard = []

    def answer(told: protocol.Python) -> dict[str, object]:
        heard.append(told)
        return {"cpus": [min(os.sched_getaffinity(0))]}

    out = tmp_path / "cpus"
    code = f"import os; open({str(out)!r}, 'w').write(str(len(os.sched_getaffinity(0))))"
    with Job(python(code), answer=answer) as job:
        drain(job)
    assert out.read_text() == "1"
    (told,) = heard
    assert told.argv[0] == sys.executable
    assert told.environment["OMPI_COMM_WORLD_LOCAL_RANK"] == "1"


def test_the_jobs_own_pythonpath_stays(tmp_path):
    (tmp_path / "beside.py").write_text("x = 1")
    with Job(python("import beside"), environment={"PYTHONPATH": str(tmp_path)}) as job:
        drain(job)
        assert job.exit_code == 0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: None, "command not found"),
        (lambda path: path.touch(), "not executable"),
        (lambda path: path.mkdir(), "is a folder"),
    ],
)
def test_what_cannot_be_started(tmp_path, make, text):
    make(tmp_path / "job")
    with pytest.raises(UsageError, match=text):
        Job([str(tmp_path / "job")])


def test_a_file_that_no_loader_knows(tmp_path):
    path = tmp_path / "job"
    path.write_bytes(b"\x00\x01")
    path.chmod(0o755)
    with pytest.raises(UsageError, match="cannot start"):
        Job([str(path)])


def test_no_command():
    with pytest.raises(UsageError, match="no command"):
        Job([])


def test_leaving_the_block_ends_children_and_grandchildren(tmp_path):
    pids = tmp_path / "pids"
    inner = f"import os, time; open({str(pids)!r}, 'a').write(str(os.getpid())); time.sleep(600)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with Job(python(outer)) as job:
        grandchild = int(wait_for(pids, job))
    assert job.exit_code == 128 + signal.SIGTERM
    assert not running(grandchild)


def test_workers_in_groups_of_their_own_end_too(tmp_path, monkeypatch):
    """As those of torchrun, where they do not end with it."""
    monkeypatch.setattr(launch, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(launch, "KILLED_SECONDS", 240.0)  # it waits no longer than they need
    pids = [tmp_path / name for name in ("asked", "deaf")]
    codes = [f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)" for pid in pids]
    outer = (
        "import subprocess, sys, time\n"
        "def start(code):\n"
        "    before = 'import os, signal, time; ' + code\n"
        "    subprocess.Popen([sys.executable, '-c', before], start_new_session=True)\n"
        f"start({codes[0]!r})\n"
        f"start('signal.signal(signal.SIGTERM, signal.SIG_IGN); ' + {codes[1]!r})\n"
        "time.sleep(600)\n"
    )
    with Job(python(outer)) as job:
        workers = [int(wait_for(pid, job)) for pid in pids]
    assert not any(map(running, workers))


def test_a_folder_whose_name_is_too_long_for_a_socket(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(launch.tempfile, "tempdir", str(long))
    with pytest.raises(UsageError, match="cannot listen at") as caught:
        Job(python("pass"))
    assert "TMPDIR" in str(caught.value.remedy)
    assert list(long.iterdir()) == []


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "GRACE_SECONDS", 0.3)
    ready = tmp_path / "ready"
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(ready)!r}, 'w').write('1'); time.sleep(600)"
    )
    with Job(python(code)) as job:
        wait_for(ready, job)
    assert job.exit_code == 128 + signal.SIGKILL


def test_a_job_that_handles_sigterm_has_the_time_to(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "GRACE_SECONDS", 120.0)
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    code = (
        "import signal, sys, time, pathlib\n"
        "def save(*_):\n"
        "    time.sleep(0.3)\n"
        f"    pathlib.Path({str(saved)!r}).write_text('all')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"pathlib.Path({str(ready)!r}).write_text('1')\n"
        "time.sleep(600)\n"
    )
    with Job(python(code)) as job:
        wait_for(ready, job)
    assert saved.read_text() == "all"


def test_a_second_interrupt_ends_the_grace_at_once(tmp_path, monkeypatch):
    ready = tmp_path / "ready"
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(ready)!r}, 'w').write('1'); time.sleep(600)"
    )
    job = Job(python(code))
    wait_for(ready, job)

    def interrupt(_: float) -> list[object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(job._selector, "select", interrupt)
    with pytest.raises(KeyboardInterrupt), job:
        pass
    assert job.exit_code == 128 + signal.SIGKILL
    assert not job._folder.exists()


def test_what_a_job_left_behind_on_its_own_stays(tmp_path):
    pids = tmp_path / "pids"
    code = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    outer = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {code!r}])\n"
        f"while not os.path.exists({str(pids)!r}) or not os.path.getsize({str(pids)!r}):\n"
        "    time.sleep(0.02)\n"
    )
    with Job(python(outer), stdout=subprocess.DEVNULL) as job:
        left = int(wait_for(pids, job))
        drain(job)
        assert job.exit_code == 0
    assert running(left)
    os.kill(left, signal.SIGKILL)


def test_the_folder_of_the_socket_goes_with_the_job():
    with Job(python("pass")) as job:
        drain(job)
        assert job._folder.exists()
    assert not job._folder.exists()


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.0\r\n\r\n", b"\xff\xfe\n", b'{"type": "unknown"}\n', b"[1, 2]\n", b"half"],
)
def test_a_foreign_process_on_the_socket_does_no_harm(said):
    with Job(python("import time; time.sleep(0.5)")) as job:
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.connect(str(job._folder / "socket"))
            foreign.sendall(said)
            told = drain(job)
        assert job.exit_code == 0
    assert [type(message) for message in told] == [protocol.Python]


def test_a_message_without_an_end_is_not_kept(monkeypatch):
    monkeypatch.setattr(launch, "LONGEST_MESSAGE", 1000)
    with Job(python("import time; time.sleep(0.5)")) as job:
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.connect(str(job._folder / "socket"))
            foreign.sendall(b"x" * 5000)
            drain(job)
        assert not job._buffers


def test_a_plugin_gets_its_first_orders_and_later_ones():
    orders = []
    with Job(python("import time; time.sleep(600)"), greet=lambda process: ["first"]) as job:
        with socket.socket(socket.AF_UNIX) as plugin:
            plugin.connect(str(job._folder / "socket"))
            hello = b'{"type":"plugin","pid":1,"version":"2","git":"","python":"3"}\n'
            plugin.sendall(hello[:20])  # a message may come in parts
            for event in job.events(0.1):
                if event is None:
                    with contextlib.suppress(IndexError):
                        plugin.sendall(hello[20:])
                        hello = b""
                elif isinstance(event.message, protocol.Plugin):
                    assert event.process is not None
                    event.process.order(["second", "third"])
                    orders = plugin.makefile("rb").read(len("first\nready\nsecond\nthird\n"))
                    break
        assert orders == b"first\nready\nsecond\nthird\n"


def test_a_process_that_has_ended_does_not_mind_orders(tmp_path):
    process, heard = None, tmp_path / "heard"
    waits = f"import os, time\nwhile not os.path.exists({str(heard)!r}): time.sleep(0.02)"
    with Job(python(waits)) as job:
        with socket.socket(socket.AF_UNIX) as plugin:
            plugin.connect(str(job._folder / "socket"))
            plugin.sendall(b'{"type":"plugin","pid":1,"version":"2","git":"","python":"3"}\n')
            for event in job.events(0.1):
                if event is not None and event.process is not None:
                    process = event.process
                    break
        heard.touch()
        drain(job)
        assert process is not None
        process.order(["too late"])


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def framework_with_temporary_files(folder: Path) -> None:
    """Modules by the names of TensorFlow's and PyTorch's, which make temporary files as they do."""
    made = {
        "tensorflow/python/autograph/pyct/loader.py": "NamedTemporaryFile("
        "prefix='__autograph_generated_file', suffix='.py', delete=False).name",
        "torch/distributed/elastic/multiprocessing/api.py": "mkdtemp(prefix='torchelastic_')",
    }
    for name, call in made.items():
        (folder / name).parent.mkdir(parents=True)
        for package in Path(name).parents[:-1]:
            (folder / package / "__init__.py").touch()
        (folder / name).write_text(f"import tempfile\ndef make():\n    return tempfile.{call}\n")


def test_temporary_files_of_a_job_that_is_ended_are_removed(tmp_path, monkeypatch):
    framework_with_temporary_files(tmp_path / "modules")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    others = "__autograph_generated_file_other.py", "mine.txt"
    for name in others:
        (temporary / name).write_text("of another process")
    code = """
import pathlib, sys, tempfile, time
from tensorflow.python.autograph.pyct import loader
from torch.distributed.elastic.multiprocessing import api
made = [loader.make(), api.make(), api.make()]
pathlib.Path(made[2], "log").write_text("an error of the job")
tempfile.mkstemp(prefix="kept_")
pathlib.Path(sys.argv[1]).write_text(made[2])
time.sleep(600)
"""
    ready = tmp_path / "ready"
    modules = {"PYTHONPATH": str(tmp_path / "modules")}
    command = [*python(code), str(ready)]
    with Job(command, environment=modules, answer=lambda _: {"plugin": False}) as job:
        with_log = Path(wait_for(ready, job))
        assert len(list(temporary.glob("__autograph_generated_file*"))) == 2
    kept = {path.name for path in temporary.iterdir() if not path.name.startswith("kept_")}
    # what others made, and a folder with a log in it
    assert kept >= {*others, with_log.name}
    assert len(list(temporary.glob("torchelastic_*"))) == 1
    assert len(list(temporary.glob("__autograph_generated_file*"))) == 1
    assert len(list(temporary.glob("kept_*"))) == 1


def test_a_job_that_ends_by_itself_keeps_its_temporary_files(tmp_path, monkeypatch):
    framework_with_temporary_files(tmp_path / "modules")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = "from torch.distributed.elastic.multiprocessing import api; api.make()"
    modules = {"PYTHONPATH": str(tmp_path / "modules")}
    with Job(python(code), environment=modules, answer=lambda _: {"plugin": False}) as job:
        drain(job)
        assert job.exit_code == 0
    assert len(list(tmp_path.glob("torchelastic_*"))) == 1
