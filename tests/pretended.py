"""Jobs that only pretend: the plugin's barrier on a clock that a test moves."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from dltune.bench.contestants import Setting
from dltune.bench.runner import Runner
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.job.protocol import Orders
from dltune.schemas.plan import SCHEMA, Plan, Threads, Uniform


class Clock:
    """CLOCK_MONOTONIC nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


class PretendedJob:
    """Executes graphs in a fixed cycle, each for as long as `cost` says, as the plugin tells it.

    `graphs`: (signature, is it a target) in the order of execution. `cost`: seconds of an execution
    by its number and its place in the turn. After `length` executions the job exits with
    `exit_code`.
    """

    def __init__(
        self,
        clock: Clock,
        graphs: Sequence[str] = ("step",),
        *,
        cost: Callable[[int, int], float] = lambda number, place: 0.01,
        length: int = 10**9,
        exit_code: int = 0,
    ) -> None:
        self.pid = os.getpid()
        self.hello = protocol.Plugin(self.pid, "2.21.0", "git", "3.11")
        self.exit_code: int | None = None
        self.granted: list[int] = []
        self.queue: deque[Event] = deque()
        self._clock = clock
        self._graphs = list(dict.fromkeys(graphs))
        self._cycle = itertools.cycle([self._graphs.index(g) for g in graphs])
        self._cost = cost
        self._left = length
        self._code = exit_code
        self._number = 0
        self._open: dict[int, protocol.Execution] = {}  # executions that have not been told yet
        self._next = next(self._cycle)

    def boot(self, runner: Runner) -> PretendedJob:
        """As far as the first step, where the job waits at the step barrier."""
        runner.begin(self)
        self.first_orders = runner.greet(self)
        self._tell(self.hello)
        self._tell(protocol.Device(2, 1, 0, 0))
        for number, signature in enumerate(self._graphs):
            self._tell(protocol.Graph(number, signature, signature, "CPU:0", False, []))
        self._arrive()
        return self

    def order(self, lines: Sequence[str]) -> None:
        for line in lines:
            word, count = line.split("\t")
            assert word == "grant"
            self.granted.append(int(count))
            for place in range(int(count)):
                if not self._left:
                    self.exit_code = self._code
                    return
                self._execute(place)
            self._arrive()

    def _execute(self, place: int) -> None:
        if self._next in self._open:
            self._tell(self._open.pop(self._next))
        self._open[self._next] = execution(self._next, self._clock.now)
        self._clock.pass_(self._cost(self._number, place))
        self._next = next(self._cycle)
        self._number += 1
        self._left -= 1

    def _arrive(self) -> None:
        if self._next in self._open:
            self._tell(self._open.pop(self._next))
        self._tell(protocol.Waiting(self._clock.now))

    def _tell(self, message: protocol.Message) -> None:
        self.queue.append(Event(self, message))  # type: ignore[arg-type]

    def events(self, tick: float) -> Iterator[Event | None]:
        while True:
            while self.queue:
                yield self.queue.popleft()
            if self.exit_code is not None:
                return
            yield None


def execution(graph: int, start: int) -> protocol.Execution:
    zeros = dict.fromkeys(protocol.Execution.__struct_fields__, 0)
    return protocol.Execution(**{**zeros, "graph": graph, "start": start, "events": []})


def plan(signatures: Sequence[str] = ("step",)) -> Plan:
    """A plan of one uniform setting for jobs with these step graphs."""
    section = Threads("uniform 2x1", Uniform(2, 1), False, False, 0.0, (), ())
    return Plan(SCHEMA, "2026", "0", "", "", "", 2, None, tuple(signatures), {"threads": section})


def setting(name: str, signatures: Sequence[str] = ("step",), **more: object) -> Setting:
    orders = Orders(1, targets=signatures, barrier=True)
    return Setting(name, Uniform(2, 1), orders, **more)  # type: ignore[arg-type]
