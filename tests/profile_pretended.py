"""A job with known graphs and op times, which obeys orders as the plugin does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from told import execution, key, plugin

from dltune.job import protocol
from dltune.job.launch import Event
from dltune.profile.breakdown import PythonLines


class NoLooks(PythonLines):
    """There is no Python to look at."""

    def start(self) -> None:
        pass

    @property
    def why(self) -> None:
        return None


SECONDS = Callable[[int, int], float]  # (key, threads) -> seconds; threads 0: the job's own


class Process:
    """One process of the job. `curve` gives its op times."""

    def __init__(self, curve: SECONDS, pid: int) -> None:
        self.hello = plugin(pid)
        self.pid = pid
        self.heard: list[str] = []
        self._curve = curve
        self._graphs: dict[int, protocol.Graph] = {}
        self._runs = 0
        self._now = 0
        self._orders: dict[str, list[list[str]]] = {}
        self._draft: dict[str, list[list[str]]] = {}

    def order(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.heard.append(line)
            word, *fields = line.split("\t")
            if word == "begin":
                self._draft = {}
            if word == "end":
                self._orders = self._draft
            else:
                self._draft.setdefault(word, []).append(fields)

    def show(self, graph: protocol.Graph) -> Iterator[Event]:
        self._graphs[graph.id] = graph
        yield self._say(graph)
        for number, node in enumerate(graph.nodes):
            yield self._say(key(number, node.type))

    def run(self, graph: int, pause: float = 0.0) -> Iterator[Event]:
        """One execution, told when the orders want it."""
        kinds = [node.type for node in self._graphs[graph].nodes]
        target = [self._graphs[graph].signature] in self._orders.get("target", [])
        chosen = {fields[0]: int(fields[1]) for fields in self._orders.get("op", [])}
        default = int(self._orders.get("default", [["0"]])[0][0]) if target else 0
        threads = [
            chosen.get(key(i, kind).key, default) if target else 0 for i, kind in enumerate(kinds)
        ]
        seconds = [self._curve(i, n) for i, n in enumerate(threads)]
        told = execution(
            graph,
            self._now,
            seconds,
            number=self._runs,
            version=int(self._orders["begin"][0][0]),
        )
        events = [
            (*event[:2], n, *event[3:]) for event, n in zip(told.events, threads, strict=True)
        ]
        told.events[:] = events
        self._runs += 1
        self._now += round((sum(seconds) + pause) * 1e9)
        if "discover" in self._orders or (target and "events" in self._orders):
            yield self._say(told)

    def _say(self, message: protocol.Message) -> Event:
        return Event(self, message)  # type: ignore[arg-type]


class Job:
    """What a session needs of a `launch.Job`: plays `story`, then ends with `code`."""

    pid = 0

    def __init__(self, story: Iterator[Event | None], code: int = 0) -> None:
        self.exit_code: int | None = None
        self.told = 0
        self._story = story
        self._code = code

    def events(self, tick: float) -> Iterator[Event | None]:
        for event in self._story:
            self.told += 1
            yield event
        self.exit_code = self._code
