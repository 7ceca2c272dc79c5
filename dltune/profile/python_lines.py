"""Sample the line of Python that the job's main thread is at between executions, by py-spy."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence

from dltune.schemas.profile import Line
from dltune.system.checks.software import can_use_py_spy
from dltune.system.proc.process import Frame, NoStack, calls_torch, exists, own_line, stacks

# samples of a job; steps from one sample to the next, and the limits of their seconds
LOOKS = 30
STEPS_BETWEEN, LEAST_BETWEEN, MOST_BETWEEN = 3, 0.05, 0.2
# TensorFlow's Python from which a graph runs, eager and in sessions
_RUNS_GRAPH = re.compile(r"/tensorflow/python/(eager/polymorphic_function/|client/session\.py)")
_CALLS_RUNTIME = frozenset({"quick_execute", "call_function", "_call_tf_sessionrun"})


class PythonLines:
    """Sampler of a running process, at random moments that are independent of its steps.

    A separate thread takes the samples: nothing here waits. py-spy does not pause the process; a
    sample taken while the stack changes is lost.
    """

    def __init__(self, pid: int, between: float, *, looks: int = LOOKS) -> None:
        """`between`: mean seconds from one sample to the next."""
        self._pid = pid  # the kernel's number of the main thread, too
        self._looks = looks
        self._pause = between
        self._found: Counter[str | None] = Counter()  # None: no line of the job's
        self._inside = 0
        self._failure: str | None = None
        self._worker: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if py-spy is installed and permitted to sample; otherwise `why` has the reason."""
        command, found = can_use_py_spy(invited=True)
        if command is None:
            self._failure = found
            return
        self._worker = threading.Thread(target=self._work, args=(command,), daemon=True)
        self._worker.start()

    def poll(self) -> bool:
        """Return True if no more samples will come."""
        return self._worker is None or not self._worker.is_alive()

    def lines(self) -> tuple[Line, ...]:
        """Return the thread's lines in the samples so far outside a graph's execution and PyTorch,
        the most frequent first: "train.py:31 (load)", the innermost line of the job's own code.
        """
        found = self._found.copy()
        total = found.total()
        named = ((where, n) for where, n in found.items() if where is not None)
        return tuple(
            Line(where, n / total) for where, n in sorted(named, key=lambda one: (-one[1], one[0]))
        )

    @property
    def why(self) -> str | None:
        """Reason why there are no lines, in a sentence; None when there are some."""
        found = self._found.copy()
        if any(found.keys() - {None}):
            return None
        if found:
            return "no sample of the main thread was in the job's own Python code"
        if self._inside:
            return f"the main thread was inside a step in all {self._inside} samples"
        return self._failure or "py-spy has not sampled the job yet"

    def _work(self, command: str) -> None:
        for _ in range(self._looks):
            time.sleep(random.uniform(0.5, 1.5) * self._pause)
            self._look(command)
            if not exists(self._pid):
                self._failure = "the job's process ended before py-spy could sample it"
                return

    def _look(self, command: str) -> None:
        try:
            threads = stacks(command, self._pid)
        except NoStack as error:
            self._failure = str(error)
            return
        stack = next((t.frames for t in threads if t.os_thread_id == self._pid), None)
        if stack is None:
            self._failure = "py-spy did not find the Python stack of the main thread"
        elif runs_graph(stack) or calls_torch(stack):
            self._inside += 1
        else:
            self._found[own_line(stack)] += 1


def between_looks(step: float) -> float:
    """Return seconds from one sample to the next of a job whose step takes `step` seconds."""
    return min(max(STEPS_BETWEEN * step, LEAST_BETWEEN), MOST_BETWEEN)


def runs_graph(stack: Sequence[Frame]) -> bool:
    """Return True if a thread with this stack, innermost frame first, is inside a graph's
    execution: in a call of TensorFlow's runtime, made for a function or a session. (Eager ops make
    the same calls, for no function.)"""
    innermost = next(iter(stack), None)
    return (
        innermost is not None
        and innermost.name.rpartition(".")[2] in _CALLS_RUNTIME  # "Class.method" since 3.11
        and any(_RUNS_GRAPH.search(frame.filename) for frame in stack)
    )
