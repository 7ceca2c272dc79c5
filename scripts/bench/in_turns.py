"""One training job in which the executions of its step take turns between two sets of orders."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence

from dltune.job.launch import Job, Process
from dltune.job.protocol import Execution, Orders, alternate_line, machine_lines
from dltune.job.record import Record, main_graph
from dltune.schemas.machine import Machine

DISCOVER, FIRST, SECOND = 1, 2, 3
SIGHTINGS = 5  # executions after which the graph with the most time is taken for the step
WARM_UP = 6  # executions after the switch that are not compared


def executions(
    command: Sequence[str], machine: Machine, orders: Callable[[int, str, Record], Orders]
) -> Iterator[Execution]:
    """Executions of the step, the warm-up left out, until the reader stops or the job ends.

    `orders` of a version (FIRST or SECOND) for the step with this signature; the executions tell
    by their version whose turn it was.
    """
    records: dict[int, Record] = {}

    def greet(process: Process) -> list[str]:
        records[process.pid] = Record(process.hello)
        return [*machine_lines(machine), *Orders(DISCOVER, discover=True).lines()]

    step, seen = None, 0
    with Job(command, greet=greet, stdout=subprocess.DEVNULL) as job:
        for event in job.events(1.0):
            if event is None or event.process is None:
                continue
            message, record = event.message, records[event.process.pid]
            if not isinstance(message, Execution):
                record.add(message)
            elif step is None:
                record.add(message)
                main = main_graph(record)
                if main is not None and len(record.executions[main]) >= SIGHTINGS:
                    step = main
                    signature = record.graphs[step].signature
                    event.process.order(
                        [
                            *orders(FIRST, signature, record).lines(),
                            *orders(SECOND, signature, record).lines(),
                            alternate_line([FIRST, SECOND]),
                        ]
                    )
            elif message.graph == step and message.version != DISCOVER:
                seen += 1
                if seen > WARM_UP:
                    yield message
