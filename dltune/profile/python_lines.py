"""Which line of the job's Python its main thread stands at between executions: py-spy looks."""

from __future__ import annotations

import random
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dltune.documents.profile import Line
from dltune.machine.checks.py_spy import executable, py_spy

# looks at a job, and the seconds over which they are spread
LOOKS, SECONDS = 30, 6.0
# a look that takes longer is given up
PATIENCE_SECONDS = 5.0

# Frames that are not the job's: the interpreter's own library, TensorFlow, what AutoGraph made of
# the job's functions while it traced them. Of the rest, installed packages come last.
_FOREIGN = re.compile(
    r"^<frozen |/lib(64)?/python3\.\d+/(?!(site|dist)-packages/)|/python3\d+\.zip/"
    r"|/(tensorflow|keras|tf_keras|absl|horovod)/|__autograph_generated_file"
)
_INSTALLED = re.compile(r"/(site|dist)-packages/")
# TensorFlow's Python from which a graph runs, eager and in sessions
_RUNS_GRAPH = re.compile(r"/tensorflow/python/(eager/polymorphic_function/|client/session\.py)")
_CALLS_RUNTIME = frozenset({"quick_execute", "call_function", "_call_tf_sessionrun"})


class Frame(msgspec.Struct, frozen=True):
    """A Python function that a thread is in: its file's full path, and the line there."""

    name: str
    filename: str
    line: int


class _Thread(msgspec.Struct, frozen=True):
    """One thread as `py-spy dump --json` tells it, the innermost frame first."""

    os_thread_id: int | None
    frames: list[Frame]


_decode = msgspec.json.Decoder(list[_Thread]).decode


class PythonLines:
    """Looks at a running process, at random moments so that they keep no time with its steps.

    The looks are taken by a thread of its own: nothing here waits. py-spy does not pause the
    process; a look that finds its stack in change is lost.
    """

    def __init__(
        self,
        pid: int,
        *,
        thread: int | None = None,
        looks: int = LOOKS,
        seconds: float = SECONDS,
    ) -> None:
        """`thread`: the kernel's number of the thread to look at, by default the main one."""
        self._pid = pid
        self._thread = pid if thread is None else thread
        self._looks = looks
        self._pause = seconds / looks
        self._found: Counter[str | None] = Counter()  # None: no line of the job's
        self._inside = 0
        self._failure: str | None = None
        self._stopped = threading.Event()
        self._worker: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if py-spy is here and may look; `why` tells if not."""
        check = py_spy()
        command = executable()
        if command is None or check.state != "ok":
            self._failure = f"py-spy: {check.found}"
            return
        self._worker = threading.Thread(target=self._work, args=(command,), daemon=True)
        self._worker.start()

    def poll(self) -> bool:
        """Whether no more looks will come."""
        return self._worker is None or not self._worker.is_alive()

    def stop(self) -> None:
        """No more looks but one that is under way. Returns at once."""
        self._stopped.set()

    def lines(self) -> tuple[Line, ...]:
        """Where the thread stood in the looks so far that found it outside a graph's execution,
        the most frequent line first: "train.py:31 (load)", the innermost of the job's own."""
        found = self._found.copy()
        total = found.total()
        named = ((where, n) for where, n in found.items() if where is not None)
        return tuple(
            Line(where, n / total) for where, n in sorted(named, key=lambda one: (-one[1], one[0]))
        )

    @property
    def why(self) -> str | None:
        """Why there are no lines, in a sentence; None when there are some."""
        found = self._found.copy()
        if any(found.keys() - {None}):
            return None
        if found:
            return "the main thread stood at no line of the job's own Python"
        if self._inside:
            return f"the main thread was inside a graph's execution in all of {self._inside} looks"
        return self._failure or "py-spy has not looked at the job yet"

    def _work(self, command: str) -> None:
        for _ in range(self._looks):
            if self._stopped.wait(random.uniform(0.5, 1.5) * self._pause):
                return
            self._look(command)
            if not Path(f"/proc/{self._pid}").exists():
                self._failure = "the job's process ended before py-spy could look at it"
                return

    def _look(self, command: str) -> None:
        arguments = [command, "dump", "--nonblocking", "--json", "--pid", str(self._pid)]
        try:
            # out of the terminal's reach: ^C is for dltune to answer
            looked = subprocess.run(
                arguments,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE_SECONDS,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            self._failure = f"py-spy took longer than {PATIENCE_SECONDS:.0f} s for a look"
            return
        except OSError as error:
            self._failure = f"py-spy could not be started: {error}"
            return
        if looked.returncode != 0:
            self._failure = _reason(looked.stderr.decode(errors="replace"))
            return
        try:
            threads = _decode(looked.stdout)
        except msgspec.DecodeError as error:
            self._failure = f"this py-spy tells stacks in a form that dltune cannot read: {error}"
            return
        stack = next((t.frames for t in threads if t.os_thread_id == self._thread), None)
        if stack is None:
            self._failure = "py-spy did not find the main thread's Python stack"
        elif runs_graph(stack):
            self._inside += 1
        else:
            self._found[own_line(stack)] += 1


def runs_graph(stack: Sequence[Frame]) -> bool:
    """Whether a thread with this stack, innermost frame first, is inside a graph's execution: it
    stands in a call of TensorFlow's runtime, made for a function or a session. (Eager ops make the
    same calls, for no function.)"""
    innermost = next(iter(stack), None)
    return (
        innermost is not None
        and innermost.name.rpartition(".")[2] in _CALLS_RUNTIME  # "Class.method" since 3.11
        and any(_RUNS_GRAPH.search(frame.filename) for frame in stack)
    )


def own_line(stack: Sequence[Frame]) -> str | None:
    """The innermost frame that is the job's own, as "file.py:31 (function)"; that of an installed
    package when the whole job is one; None when there is neither."""
    candidates = [frame for frame in stack if not _FOREIGN.search(frame.filename)]
    own = [frame for frame in candidates if not _INSTALLED.search(frame.filename)]
    for frame in own or candidates:
        return f"{Path(frame.filename).name}:{frame.line} ({frame.name})"
    return None


def _reason(stderr: str) -> str:
    """Why a look failed, from what py-spy said."""
    if "ermission denied" in stderr or "Permission Denied" in stderr:
        return "py-spy may not read the job's memory: permission denied"
    if "No such file" in stderr or "No such process" in stderr:
        return "the job's process ended before py-spy could look at it"
    first = next(iter(stderr.strip().splitlines()), "it gave no reason")
    return f"py-spy failed: {first.removeprefix('Error: ')}"
