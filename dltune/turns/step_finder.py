"""The steps of a job, found among its graphs: also under settings that change the graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dltune.job.protocol import Graph
from dltune.job.record import Record
from dltune.profile.processes import Discovery

# of warm steps, seconds and number that are enough to know a long step by
LONG_SECONDS, LONG_LEAST = 5.0, 1
# executions after which a graph like a known step is taken for it: the first ones warm up
LEAST_RUNS = 3
# so many more are waited for when another graph of the step has not come yet
PATIENT_RUNS = 12
# share of the smaller graph's names that are in the other graph, too
LIKE = 0.3


@dataclass(frozen=True)
class StepGraphs:
    """Graphs of one process, the main graph first: by signature, and the names of their nodes.
    `trains`: True if they train, or are XLA's, of which that is unknown."""

    pid: int
    signatures: tuple[str, ...]
    nodes: tuple[frozenset[str], ...]
    trains: bool = True


class StepFinder:
    """Finds the steps in the messages of a job's processes so far.

    It finds them again under settings that change the graphs. A setting can fuse ops, have XLA
    compile them, or let one execution run several steps, so a step's signature does not identify
    it under another setting. The script's names of layers and variables stay: the graph with the
    most of the step's nodes, by name, is the step.

    `known`: the names of the nodes of steps that train, from the same job under other settings
    (`nodes`). Graphs that do not train, such as the filling of a buffer, are not taken for them
    then.
    """

    def __init__(
        self, records: Mapping[int, Record], known: tuple[frozenset[str], ...] = ()
    ) -> None:
        self._records = records
        self._known = known
        self._discovery = Discovery(records, xla=True, seconds=LONG_SECONDS, least=LONG_LEAST)
        self._names: dict[tuple[int, int], frozenset[str]] = {}

    def find(self) -> StepGraphs | None:
        """The steps, once they have run often enough; None until then."""
        for pid, record in self._records.items() if self._known else ():
            if found := self._like_known(pid, record):
                return found
        steps = self._discovery.find()
        if steps is None:
            return None
        graphs = [self._records[steps.pid].graphs[graph] for graph in steps.targets]
        trains = steps.trains or graphs[0].xla
        return _graphs(steps.pid, graphs, trains) if trains or not self._known else None

    def _like_known(self, pid: int, record: Record) -> StepGraphs | None:
        """The graphs that are most like the known ones."""
        found: list[Graph] = []
        for known in self._known:
            _, graph = max(self._likely(pid, record, known), default=(0, None))
            if graph is not None and record.graphs[graph] not in found:
                found.append(record.graphs[graph])
            elif not found:
                return None
        if len(found) < len(self._known) and record.runs[found[0].id] < PATIENT_RUNS:
            return None
        return _graphs(pid, found)

    def _likely(self, pid: int, record: Record, known: frozenset[str]) -> Iterator[tuple[int, int]]:
        """Graphs that repeat and train, or are XLA's, and are like a known one: the number of names
        that they share with it, and which they are."""
        for graph, runs in record.runs.items():
            if runs < LEAST_RUNS or not (record.trains(graph) or record.graphs[graph].xla):
                continue
            names = self._names.setdefault((pid, graph), _names(record.graphs[graph]))
            shared = len(names & known)
            if shared >= LIKE * min(len(names), len(known)):
                yield shared, graph


def _graphs(pid: int, graphs: list[Graph], trains: bool = True) -> StepGraphs:
    by_signature: dict[str, frozenset[str]] = {}
    for graph in graphs:
        by_signature.setdefault(graph.signature, _names(graph))
    return StepGraphs(pid, tuple(by_signature), tuple(by_signature.values()), trains)


def _names(graph: Graph) -> frozenset[str]:
    return frozenset(node.name for node in graph.nodes)
