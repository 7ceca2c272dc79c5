"""The activity of simulated ranks, for Perfetto and chrome://tracing (Chrome's JSON trace
format)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dltune.systems.ranks.simulation.outcome import Doing, Slice

# a rank is a process; its background thread is one row, what it works for are two more
_NAMES = {1: "background thread", 2: "computing", 3: "input pipeline"}
_ROWS: dict[Doing, int] = {
    **dict.fromkeys(("sleep", "oversleep", "wait", "transfer"), 1),
    "compute": 2,
    "input": 3,
}


def trace(simulations: Mapping[str, Sequence[Slice]]) -> bytes:
    """A row for each rank's background thread, computing and input pipeline, under each title.

    Moments are whole nanoseconds, so that one slice ends where the next begins.
    """
    events: list[dict[str, Any]] = []
    # not a row's number: Perfetto takes the thread with its process's for its main one
    process = max(_NAMES)
    for title, slices in simulations.items():
        processes: dict[int, int] = {}
        for rank in sorted({piece.rank for piece in slices}):
            process += 1
            processes[rank] = process
            events.append(_named("process_name", process, 0, f"{title}: rank {rank}"))
            events += [_named("thread_name", process, row, name) for row, name in _NAMES.items()]
        for piece in slices:
            start, end = round(piece.start * 1e9), round(piece.end * 1e9)
            if end > start:
                events.append(
                    {
                        "ph": "X",
                        "name": piece.doing,
                        "cat": "simulated",
                        "pid": processes[piece.rank],
                        "tid": _ROWS[piece.doing],
                        "ts": start / 1e3,
                        "dur": (end - start) / 1e3,
                    }
                )
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))
    return text.encode()


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
