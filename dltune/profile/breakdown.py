"""Division of a step's wall time: ops, the executor, input, communication, Python.

Every nanosecond from one step to the next belongs to one part, the first of these that applies:

    ops             a working op runs
    input           an op that waits for data runs
    communication   an op that waits for another process runs, or a sum of ranks is waited for
    executor        an execution is between its start and its last op's end
    input           as long as eager ops waited for data, at most the rest
    python          the rest; for an eager graph also the time between its ops

An op posted early, such as a receive, waits during nearly everything else. So communication comes
after input, the more particular reason. Both come after any work: waits that overlap with work cost
nothing.

`PythonLines` samples the line of Python that runs between executions.
"""

from __future__ import annotations

import random
import re
import statistics
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from dltune.job import protocol
from dltune.job.record import NANOSECOND
from dltune.schemas.graph import kind
from dltune.schemas.profile import Line, Part, PartName, is_awaited
from dltune.system.checks.software import can_use_py_spy
from dltune.system.proc.process import Frame, NoStack, calls_torch, exists, own_line, stacks

PARTS: tuple[PartName, ...] = ("ops", "executor", "input", "communication", "python")
# which of several simultaneous parts counts
_FIRST: tuple[PartName, ...] = ("ops", "input", "communication", "executor")

# absolute nanoseconds, the end left out; the part then ("executor": an execution)
_Interval = tuple[int, int, PartName]


def parts(
    graphs: Mapping[int, protocol.Graph],
    steps: Mapping[int, Sequence[protocol.Execution]],
    others: Iterable[protocol.Execution] = (),
) -> dict[int, tuple[Part, ...]]:
    """Return the parts of each step: all of `PARTS`, none below 0.

    `steps`: the executions of each step under the job's own settings, in order. `others`:
    executions of other graphs; a graph that only runs within calls of the steps is their body.

    Time is cut where an execution of *any* step starts. A step has the time from its own starts to
    the next such cut, its turns: with one step these are its walls, from start to start; with
    several, the turns of all make up the round, and none is charged for another's. Work that goes
    on beyond a cut counts there, whichever execution it belongs to.

    The parts add up to the *median* turn (to rounding): they are divided as in the half of the
    turns around it, so that an epoch's end or a checkpoint does not count. A turn is left out when
    its execution has no events, or when an execution that belongs in it was lost. If none remains,
    the executions alone count, without the time after them; without any, there are no parts.
    """
    ordered = sorted(
        ((step, e) for step, executions in steps.items() for e in executions),
        key=lambda one: (one[1].start, one[0]),
    )
    busy = _intervals(graphs, [e for _, e in ordered], others)
    # before this, a step that runs often has been forgotten in part, and a rarer one has not
    since = max((executions[0].start for executions in steps.values() if executions), default=0)
    lost = _lost(e for _, e in ordered)
    turns: dict[int, list[Counter[PartName]]] = defaultdict(list)
    tallies = _tally(busy, [e.start for _, e in ordered])
    for tally, ((step, execution), (_, following)) in zip(tallies, pairwise(ordered), strict=True):
        start = execution.start
        if not execution.events or start < since or any(a <= start < b for a, b in lost):
            continue
        eager = min(max(following.waited - execution.waited, 0), tally["python"])
        tally["input"] += eager
        tally["python"] -= eager
        turns[step].append(tally)
    for step, executions in steps.items():
        for execution in executions if step not in turns else ():
            if execution.events:
                turns[step] += _tally(busy, [execution.start, _end(execution)])
    return {step: _typical(turns[step]) for step in steps}


def _end(execution: protocol.Execution) -> int:
    return execution.start + max((event[5] for event in execution.events), default=0)


def _typical(turns: Sequence[Counter[PartName]]) -> tuple[Part, ...]:
    """Return the median turn, divided as in the half of the turns around it."""
    if not turns:
        return ()
    ranked = sorted(turns, key=Counter.total)
    middle = ranked[len(ranked) // 4 : len(ranked) - len(ranked) // 4]
    total = sum(turn.total() for turn in middle)
    scale = statistics.median(map(Counter.total, turns)) * NANOSECOND / total if total else 0.0
    return tuple(Part(name, sum(turn[name] for turn in middle) * scale) for name in PARTS)


def _lost(executions: Iterable[protocol.Execution]) -> list[tuple[int, int]]:
    """Return the absolute nanoseconds between which executions of a graph are missing by their
    numbers."""
    numbered: dict[int, list[protocol.Execution]] = defaultdict(list)
    for execution in executions:
        numbered[execution.graph].append(execution)
    return [
        (before.start, after.start)
        for known in numbered.values()
        for before, after in pairwise(known)
        if after.number > before.number + 1
    ]


def _intervals(
    graphs: Mapping[int, protocol.Graph],
    steps: Sequence[protocol.Execution],
    others: Iterable[protocol.Execution],
) -> list[_Interval]:
    """Return the intervals of executions of the steps, and their ops; bodies' ops in place of their
    calls."""
    kinds = {id: [kind(node.type) for node in graph.nodes] for id, graph in graphs.items()}
    found: list[_Interval] = [
        (e.start, _end(e), "executor") for e in steps if not graphs[e.graph].eager
    ]
    calls: list[tuple[int, int]] = []

    def add(execution: protocol.Execution) -> None:
        found.extend(_awaited(graphs[execution.graph], execution))
        for node, _, _, _, start, end, _ in execution.events:
            what = kinds[execution.graph][node]
            start, end = execution.start + start, execution.start + end
            if what == "call":
                calls.append((start, end))
            else:
                found.append((start, end, what))

    for execution in steps:
        add(execution)
    if not calls:
        return found
    first, last = min(e.start for e in steps), max(_end(e) for e in steps)
    bodies = _within(calls, [e for e in others if first <= e.start < last])
    for execution in bodies:
        add(execution)
    starts = sorted(e.start for e in bodies)
    for start, end in calls:
        first = bisect_left(starts, start)
        if first == len(starts) or starts[first] >= end:
            found.append((start, end, "ops"))  # no body was reported: count it as busy
    return found


def _awaited(graph: protocol.Graph, execution: protocol.Execution) -> Iterator[_Interval]:
    """Yield intervals in which no op of an eager step runs, since it waits for a sum of several
    ranks."""
    if not graph.eager:
        return
    ran = sorted(execution.events, key=lambda event: event[4])
    for (before, *_, end, _), (after, _, _, _, start, _, _) in pairwise(ran):
        if is_awaited(graph.nodes[before].type, graph.nodes[after].type) and end < start:
            yield execution.start + end, execution.start + start, "communication"


def _within(
    calls: Iterable[tuple[int, int]], others: Iterable[protocol.Execution]
) -> list[protocol.Execution]:
    """Return the executions of graphs that only ever run within one of `calls`. Graphs of an input
    pipeline do not: they run in parallel with the steps."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(calls):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    starts = [start for start, _ in merged]
    bodies: dict[int, list[protocol.Execution]] = defaultdict(list)
    beside: set[int] = set()
    for execution in others:
        at = bisect_right(starts, execution.start) - 1
        if at < 0 or _end(execution) > merged[at][1]:
            beside.add(execution.graph)
        bodies[execution.graph].append(execution)
    return [e for graph, known in bodies.items() if graph not in beside for e in known]


def _tally(busy: Iterable[_Interval], cuts: Sequence[int]) -> list[Counter[PartName]]:
    """Return nanoseconds of each part between one of `cuts` (ascending) and the next."""
    found: list[Counter[PartName]] = [Counter() for _ in cuts[1:]]
    if not found:
        return found
    changes: list[tuple[int, PartName | None, int]] = [(cut, None, 0) for cut in cuts[1:]]
    for start, end, part in busy:
        changes += [(start, part, 1), (end, part, -1)]
    changes.sort(key=lambda change: change[0])
    running: dict[PartName, int] = dict.fromkeys(PARTS, 0)
    window, now = 0, cuts[0]
    for instant, what, change in changes:
        if instant > now:
            here: PartName = next((name for name in _FIRST if running[name]), "python")
            found[window][here] += instant - now
            now = instant
        if what is None:
            window += 1
            if window == len(found):
                break
        else:
            running[what] += change
    return found


# Lines of Python between executions

# samples of a job; steps from one sample to the next, and the limits of their seconds
LOOKS = 30
STEPS_BETWEEN, LEAST_BETWEEN, MOST_BETWEEN = 3, 0.05, 0.2
# TensorFlow's Python from which a graph runs, eager and in sessions
_RUNS_GRAPH = re.compile(r"/tensorflow/python/(eager/polymorphic_function/|client/session\.py)")
_CALLS_RUNTIME = frozenset({"quick_execute", "call_function", "_call_tf_sessionrun"})


class PythonLines:
    """Sampler of the line of Python that the main thread of a running process is at between
    executions, by py-spy.

    The moments are random and independent of the process's steps. A separate thread takes the
    samples: nothing here waits. py-spy does not pause the process; a sample taken while the stack
    changes is lost.
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
