"""Which graphs are the steps of a job, found again under settings that change the graphs.

A setting may fuse ops, have XLA compile them, or let one execution run several steps, so a step's
signature tells nothing of it under another setting. The name of the function that was traced stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dltune.job.record import Record
from dltune.profile.discovery import Discovery

_TRACED = re.compile(r"^(?:__inference_)?(.*?)(?:_\d+)*$")
# executions after which a step of a known name is taken for it: the first ones warm up
LEAST_RUNS = 3
# so many more are waited for when another graph of the step has not come yet
PATIENT_RUNS = 12


@dataclass(frozen=True)
class StepGraphs:
    """Graphs of one process, by signature, and the names of their functions; the main one first."""

    pid: int
    signatures: tuple[str, ...]
    names: tuple[str, ...]


class StepFinder:
    """Looks for the steps in what the processes of a job have told so far.

    `known`: the functions' names, from the same job under other settings; empty: not known.
    """

    def __init__(self, records: Mapping[int, Record], known: tuple[str, ...] = ()) -> None:
        self._records = records
        self._known = known
        self._discovery = Discovery(records, xla=True)

    def find(self) -> StepGraphs | None:
        """The steps, once they have run often enough; None until then."""
        for pid, record in self._records.items() if self._known else ():
            if found := self._by_name(pid, record):
                return found
        steps = self._discovery.find()
        if steps is None:
            return None
        graphs = [self._records[steps.pid].graphs[graph] for graph in steps.targets]
        return StepGraphs(
            pid=steps.pid,
            signatures=tuple(dict.fromkeys(graph.signature for graph in graphs)),
            names=tuple(dict.fromkeys(filter(None, (traced(graph.name) for graph in graphs)))),
        )

    def _by_name(self, pid: int, record: Record) -> StepGraphs | None:
        """The graphs of the known names, the one that runs most often of each."""
        runs: dict[str, tuple[int, str]] = {}
        for graph, count in record.runs.items():
            name = traced(record.graphs[graph].name)
            runs[name] = max(runs.get(name, (0, "")), (count, record.graphs[graph].signature))
        main = runs.get(self._known[0], (0, ""))[0]
        missing = [name for name in self._known if runs.get(name, (0, ""))[0] < LEAST_RUNS]
        if main < LEAST_RUNS or (missing and main < PATIENT_RUNS):
            return None
        there = [name for name in self._known if name not in missing]
        return StepGraphs(pid, tuple(dict.fromkeys(runs[n][1] for n in there)), self._known)


def traced(name: str) -> str:
    """A function's name without the number that tells one trace of it from another."""
    found = _TRACED.match(name)
    return found[1] if found else name
