"""Lets tests import the modules that stand beside this file, such as `synthetic`."""

from __future__ import annotations

import fcntl
import functools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

sys.path.append(str(Path(__file__).parent))

from perfetto_ui import PATIENCE
from profiled_jobs import JOBS, JOBS_THAT_WORK, PYTHON, Done, profile
from tensorflows import MISSING, OTHER_PYTHON
from watched_jobs import cold

# jobs import TensorFlow faster, and with the same kernels on every machine: some CPUs have oneDNN's
# by default, others Eigen's
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent / "interpreter"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# nothing is timed, neither a test nor how its examples are drawn: machines are shared; the same
# examples in every run, so that a failure comes again
settings.register_profile(
    "dltune", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dltune")
# it draws constants of the sources that are imported, too: those are others in each worker and run
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants


class ByFile(LoadFileScheduling):
    """A file's tests share its jobs, in one worker. Two jobs of several ranks at a time would be
    more ranks than cores: all their files are as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "horovod" if "horovod" in file else file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-processes",
        action="store_true",
        help="skip tests when they start a process other than the compiler (make check)",
    )


@functools.cache
def _forbid_processes() -> None:
    from dltune.native import build

    try:
        allowed = {build.compiler()[0]}
    except build.BuildError:
        allowed = set()

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in {"subprocess.Popen", "os.fork", "os.posix_spawn"}:
            return
        # libraries that dltune itself loads, not programs
        builds = event == "subprocess.Popen" and os.fspath(arguments[0]) in allowed
        if not builds or not {"-shared", "--version"} & set(arguments[1]):
            pytest.skip("starts a process")

    sys.addaudithook(refuse)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getoption("--no-processes"):
        _forbid_processes()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    config.option.loadscopereorder = False  # in the order of the collection
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Proofs only where they are asked for. Those that start real jobs come first, so that the last
    tests of the workers end together."""
    if "proof" not in config.option.markexpr:
        proofs = [item for item in items if item.get_closest_marker("proof")]
        config.hook.pytest_deselected(items=proofs)
        items[:] = [item for item in items if item not in proofs]
    items.sort(key=lambda item: item.get_closest_marker("tensorflow") is None)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the reasons for skipped tests, and the number of tests for each."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("skipped tests by reason", sep="-")
    for reason, tests in reasons.most_common():
        terminalreporter.line(f"{tests:4} {'test ' if tests == 1 else 'tests'} {reason}")


# a suite started in the background ignores these and hands that on; the jobs here must hear them
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Done]:
    """The profile of each kind of job, made once, by whichever worker asks first."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def get(name: str) -> Done:
        if name == "other_environment" and not OTHER_PYTHON.exists():
            pytest.skip(MISSING)
        folder = shared / f"profiled-{name}"
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = folder / "done"
            if not kept.exists():
                done = profile(folder, JOBS_THAT_WORK[name], cwd=JOBS, PYTHON=PYTHON)
                kept.write_bytes(pickle.dumps(done))
            return pickle.loads(kept.read_bytes())

    return get


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Python code in a process that says a line when it is ready; ends it with the test."""
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str, *arguments: object, **options: object) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            **options,  # type: ignore[call-overload]
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child

    yield start
    for child in children:
        child.kill()
        with child:
            pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """CLOCK_MONOTONIC in nanoseconds as `turns.barrier` reads it, moved by hand."""
    import pretended

    from dltune.turns import barrier

    made = pretended.Clock()
    monkeypatch.setattr(barrier.time, "monotonic_ns", made)
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium: the system's, on PATH (Debian: chromium)."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the browser extra")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("needs Chromium on PATH")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # playwright's own event loop
        with playwright.sync_playwright() as running:
            found = running.chromium.launch(
                executable_path=chromium, args=["--no-sandbox"], timeout=PATIENCE
            )
            yield found
            found.close()


@pytest.fixture
def plain_file(tmp_path: Path) -> Path:
    """32 MiB without a format, of which no page is in memory."""
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(1 << 20) * 32)
    cold(path)
    return path
