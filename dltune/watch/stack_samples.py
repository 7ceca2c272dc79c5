"""Samples of the Python stacks of a process by py-spy, and the activities that they show.

`Looks` samples all threads several times a second, and `python_activity` derives from their stacks
the activities of the main thread. `WaitingLines` samples single threads while they wait for
storage.
"""

from __future__ import annotations

import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dltune.profile.breakdown import runs_graph
from dltune.schemas import io
from dltune.schemas.diagnosis import Activity, Python, Share
from dltune.schemas.profile import Line
from dltune.system.checks.software import can_use_py_spy
from dltune.system.proc.process import Frame, NoStack, calls_torch, own_frame, own_line, stacks

# samples a second: each takes a millisecond or two of one CPU
RATE = 10
# seconds after which py-spy ends by itself, if no process remains to end it
LONGEST = 3600
# most seconds that py-spy takes to write its samples
WRITING = 10.0
_THREAD = re.compile(r"thread \((?:0x)?([0-9A-Fa-f]+)\)")
_FRAME = re.compile(r"(.+) \((.+?)(?::(\d+))?\)")


class Stack(NamedTuple):
    """A thread's stack, the innermost frame first, and the number of samples that found it."""

    thread: int
    frames: tuple[Frame, ...]
    looks: int


class Looks:
    """Samples of the threads of one process, including idle threads, without stopping them."""

    def __init__(self, pid: int, rate: int = RATE, *, invited: bool = False) -> None:
        """Start sampling at once, `rate` times a second, if py-spy is installed and allowed to;
        otherwise `why` holds the reason. `invited`: by the process itself."""
        self.pid = pid
        self.why: str | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="dltune-")
        self._file = Path(self._folder.name) / "stacks"
        self._process: subprocess.Popen[bytes] | None = None
        command, found = can_use_py_spy(invited=invited)
        if command is None:
            self.why = found
            return
        self._process = subprocess.Popen(
            [
                *recording(command, self._file, rate),
                *("--duration", str(LONGEST), "--pid", str(pid)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # out of the terminal's reach: ^C is for dltune to answer
            start_new_session=True,
        )

    def end(self) -> list[Stack]:
        """Stop, and return the stacks; an empty list, and the reason in `why`, if py-spy failed."""
        try:
            if self._process is None:
                return []
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)
            try:
                _, said = self._process.communicate(timeout=WRITING)
            except subprocess.TimeoutExpired:
                self._process.kill()
                _, said = self._process.communicate()
            if not self._file.exists():
                lines = said.decode(errors="replace").strip().splitlines() or ["no error message"]
                self.why = f"py-spy failed: {lines[-1].removeprefix('Error: ')}"
                return []
            return list(parse_stacks(self._file.read_text(errors="replace").splitlines()))
        finally:
            self._folder.cleanup()


def recording(command: str, file: Path, rate: int) -> list[str]:
    """Return the command with which py-spy (`command`) samples to `file`, `rate` times a second."""
    return [
        *(command, "record", "--nonblocking", "--idle", "--threads", "--full-filenames"),
        *("--rate", str(rate), "--format", "raw", "--output", str(file)),
    ]


def parse_stacks(lines: Iterable[str]) -> Iterator[Stack]:
    """Yield the stacks in py-spy's raw format: a thread and its frames, the outermost first,
    between semicolons, and a count of samples."""
    for line in lines:
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        number = _THREAD.match(thread)
        if number is None or not count.isdigit():
            continue
        base = 16 if "(0x" in thread else 10
        known = [_FRAME.fullmatch(frame) for frame in reversed(frames)]
        yield Stack(
            int(number[1], base),
            tuple(Frame(m[1], m[2], int(m[3] or 0)) for m in known if m),
            int(count),
        )


# Activities of a thread, by its stack

LINES = 3
# The one table: an activity, and functions that only run for it, by file and name. The first that
# any frame of a stack matches counts, for validation runs graphs, and to save reads tensors.
_RULES: tuple[tuple[Activity, re.Pattern[str], re.Pattern[str]], ...] = (
    (
        "saving",
        re.compile(
            r"/tensorflow/python/(checkpoint|saved_model|training)/|/keras/src/saving/"
            r"|/keras/src/callbacks/(model_checkpoint|backup_and_restore)|/h5py/"
        ),
        re.compile(r"(.*\.)?(_?save\w*|write|_write\w*|on_epoch_end|on_train_batch_end)"),
    ),
    (
        "saving",
        re.compile(r"/numpy/lib/|/joblib/|/pickle\.py$"),
        re.compile(r"save\w*|dump"),
    ),
    ("saving", re.compile(r"/torch/serialization\.py$"), re.compile(r"_?(legacy_)?save")),
    ("validation", re.compile(r"/keras/"), re.compile(r"(.*\.)?(evaluate|test_step)")),
    (
        "tracing",
        re.compile(r"/tensorflow/python/(eager/polymorphic_function|framework)/"),
        re.compile(
            r"(.*\.)?(trace_function|_maybe_define_function|func_graph_from_py_func"
            r"|_create_concrete_function|_initialize\w*)"
        ),
    ),
    (
        "tracing",
        re.compile(r"/torch/_dynamo/convert_frame\.py$"),
        re.compile(r"(.*\.)?(_compile\w*|__call__)"),
    ),
    (
        "input",
        re.compile(r"/tensorflow/python/data/ops/iterator_ops|/keras/src/trainers/data_adapters/"),
        re.compile(r"(.*\.)?(__next__|_next_internal|get_next)"),
    ),
    (
        "input",
        re.compile(r"/torch/utils/data/"),
        re.compile(r"(.*\.)?(__next__|__iter__|_next_data)"),
    ),
    (
        "queue",
        re.compile(
            r"/queue\.py$|/multiprocessing/(queues|connection|pool)\.py$|/concurrent/futures/"
        ),
        re.compile(r"(.*\.)?(get|_?recv\w*|_?poll|next|__next__|result|wait|as_completed)"),
    ),
    (
        "reading",
        re.compile(r"/tensorflow/python/(framework|ops)/"),
        re.compile(
            r"(.*\.)?(_?numpy|__array__|__float__|__int__|__bool__|__index__|__format__|item)"
        ),
    ),
)
# frames of TensorFlow's own ops in Python, and of Keras around its steps
_OPS = re.compile(r"/tensorflow/python/(ops|framework|util|eager)/|/keras/src/(ops|backend)/")
_FIT = re.compile(r"/keras/src/(trainers|backend/tensorflow/trainer|callbacks|utils)")
_CALL = re.compile(r"/tensorflow/python/eager/polymorphic_function/")
_IMPORTS = re.compile(r"^<frozen importlib")  # a job that only begins
_VALIDATES = re.compile(
    r"(?i)(.*\.)?_?(run_|do_)?(eval|evaluate|evaluation|val|valid|validate|validation|test)"
    r"(_?(one_)?(epoch|model|loop|step|set|batch|network|dataset))?"
)
_GENERATOR = re.compile(r"/tensorflow/python/(ops/script_ops|data/ops/from_generator_op)")


def activity(frames: Sequence[Frame]) -> Activity:
    """Return the activity of a thread of Python, by its stack. `frames`: the innermost first."""
    for name, file, function in _RULES:
        if any(file.search(f.filename) and function.fullmatch(f.name) for f in frames):
            return name
    own = own_frame(frames)
    if own and any(_VALIDATES.fullmatch(f.name) for f in frames[frames.index(own) :]):
        return "validation"
    if runs_graph(frames):
        return "step"
    fit = next((i for i, frame in enumerate(frames) if _FIT.search(frame.filename)), None)
    if fit is not None and own not in frames[:fit]:  # no callback of the job's own
        return "fit"
    if any(_CALL.search(frame.filename) for frame in frames):
        return "call"
    ops = frames and (_OPS.search(frames[0].filename) or calls_torch(frames))
    return "eager" if ops else "python"


def python_activity(pid: int, stacks: Iterable[Stack]) -> Python | None:
    """What the main thread of a process was at, once its imports were done; None where it was not
    seen then."""
    looks: Counter[Activity] = Counter()
    lines: dict[Activity, Counter[str]] = defaultdict(Counter)
    generator: Counter[str] = Counter()
    for thread, frames, count in stacks:
        if any(_IMPORTS.search(frame.filename) for frame in frames):
            continue
        if thread == pid:
            what = activity(frames)
            looks[what] += count
            if where := own_line(frames):
                lines[what][where] += count
        elif any(_GENERATOR.search(frame.filename) for frame in frames):
            generator[own_line(frames) or "?"] += count
    total = looks.total()
    if not total:
        return None
    return Python(
        pid=pid,
        looks=total,
        shares=tuple(
            Share(what, count / total, _most(lines[what], total))
            for what, count in looks.most_common()
        ),
        generator=min(1.0, generator.total() / total),
        generator_lines=_most(generator, total),
    )


def _most(lines: Counter[str], total: int) -> tuple[Line, ...]:
    return tuple(Line(where, min(1.0, n / total)) for where, n in lines.most_common(LINES))


# Lines that wait for storage
class WaitingLines:
    """Samples of the Python lines of threads that were just seen waiting for storage, as py-spy
    reports them. A sample is taken in the background, at the lowest priority, and never stops the
    job: a sample of a changing stack is lost."""

    def __init__(self) -> None:
        self._command, found = can_use_py_spy()
        self.failure = None if self._command else found
        self._found: Counter[str] = Counter()
        self._worker: threading.Thread | None = None
        self.cpu = 0.0  # CPU seconds of the samples

    @property
    def ready(self) -> bool:
        return self._command is not None and (self._worker is None or not self._worker.is_alive())

    def look(self, pid: int, tid: int) -> None:
        """Begin a sample of a process, for the line of `tid`; of its main thread when `tid` runs no
        Python (the threads of an input pipeline do not)."""
        assert self._command is not None
        arguments = (self._command, pid, tid)
        self._worker = threading.Thread(target=self._look, args=arguments, daemon=True)
        self._worker.start()

    def finish(self) -> None:
        """Wait for a sample that is under way."""
        if self._worker is not None:
            self._worker.join()

    def lines(self) -> tuple[io.Line, ...]:
        """Return the lines, the most frequent first."""
        total = self._found.total()
        return tuple(io.Line(where, n / total, n) for where, n in self._found.most_common())

    def _look(self, command: str, pid: int, tid: int) -> None:
        began, before = time.monotonic(), _children()
        try:
            found = {thread.os_thread_id: thread for thread in stacks(command, pid, gently=True)}
        except NoStack as error:
            self.failure = self.failure or str(error)
            return
        finally:
            # the job can end just meanwhile, and its time be counted here
            self.cpu += min(_children() - before, time.monotonic() - began)
        for wanted in (tid, pid):
            if wanted in found and (where := own_line(found[wanted].frames)):
                self._found[where] += 1
                return


def _children() -> float:
    """Return the CPU seconds of the child processes that this process has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
