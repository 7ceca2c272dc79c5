"""Timelines for Perfetto and chrome://tracing, in Chrome's JSON trace format, gzipped.

A process for each timeline, a thread for each of its rows, complete slices ("X") that never overlap
on a thread, flows for an op's dependencies, counters for ops in flight and memory. Format: "Trace
Event Format" (Google). Times are microseconds with three decimals, made of whole nanoseconds, so
that nothing is rounded.

An op on several cores is one slice of the category "op", on the first of its cores; the slices in
the rows of its other cores have the category "core". Slices of the category "op" thus add up to the
time of all ops. Receives from other tasks are in separate rows, of the category "transfer".
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Any

from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.plan.plan import ordered_sections
from dltune.plan.planner import load_planner
from dltune.report.page import plan_of
from dltune.report.timeline import Execution, Slice, Timeline, corunning, executions, live_bytes
from dltune.schemas.plan import Plan
from dltune.schemas.profile import Profile
from dltune.views import Context, Schedule

NAME = 200  # characters of a slice's name, and of its op's key in the arguments
KEY = 1000
# times the process's number: its rows are numbered from there
FIRST_ROW = 100_000

Event = Mapping[str, Any]


def trace(context: Context) -> bytes:
    """All timelines of all profiles and plans. Raises UsageError when there are none."""
    events: list[Event] = []
    flow = processes = 0
    profiles = ((d.path.name, d.document) for d in context.documents)
    drawn = (
        (file, profile, execution, timeline)
        for file, profile in profiles
        if isinstance(profile, Profile)
        for execution in executions(profile, plan_of(profile, context))[0]
        for timeline in execution.timelines
    )
    for process, (file, profile, execution, timeline) in enumerate(drawn, start=1):
        name = execution.step.name or execution.step.signature
        # the differing part first: Perfetto shows the beginning and the end, and sorts by names
        title = f"{timeline.title}, step {name} of {file}"
        made = _events(profile, execution, timeline, process, title, flow)
        events += made
        flow += sum(event["ph"] == "s" for event in made)
        processes = process
    for process, (file, schedule) in enumerate(_schedules(context), start=processes + 1):
        events += scheduled(schedule, f"{schedule.title}, {file}", process)
    if not events:
        raise UsageError(
            "there is no timeline to write",
            remedy="name a profile that has a step: dltune profile makes them; or a plan of "
            "parallelism",
        )
    # the standard library's, as msgspec would not write 12.340 with all its digits
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)


def _schedules(context: Context) -> Iterator[tuple[str, Schedule]]:
    """Yield the schedules of all sections of all plans. Raises DltuneError if a schedule cannot be
    computed."""
    documents = [one.document for one in context.documents]
    for loaded in context.documents:
        if isinstance(loaded.document, Plan):
            for name, section in ordered_sections(loaded.document):
                schedule = load_planner(name).schedule(section, loaded.document, documents)
                if schedule:
                    yield loaded.path.name, schedule


def scheduled(schedule: Schedule, title: str, process: int) -> Iterator[Event]:
    """Yield the events of devices and links: a row for each, the links first."""
    yield _about("process_name", process, 0, name=visible(title, NAME))
    yield _about("process_sort_index", process, 0, sort_index=process)
    tracks = [
        *(("transfer", one) for one in schedule.links),
        *(("op", d) for d in schedule.devices),
    ]
    for number, (category, track) in enumerate(tracks, start=FIRST_ROW * process):
        yield _about("thread_name", process, number, name=visible(track.label, NAME))
        yield _about("thread_sort_index", process, number, sort_index=number)
        for each in track.slices:
            yield {
                "ph": "X",
                "name": visible(each.name, NAME),
                "cat": category,
                "pid": process,
                "tid": number,
                "ts": each.start / 1e3,
                "dur": (each.end - each.start) / 1e3,
                "args": {"kind": visible(each.kind, NAME), "bytes": each.bytes},
            }


def _events(
    profile: Profile, execution: Execution, timeline: Timeline, process: int, title: str, flow: int
) -> list[Event]:
    found: list[Event] = [
        _about("process_name", process, 0, name=visible(title, NAME)),
        _about("process_sort_index", process, 0, sort_index=process),
    ]
    homes: dict[int, int] = {}
    # Perfetto takes the thread with its process's number for its main one, and shows that first
    for number, row in enumerate((*timeline.links, *timeline.rows), start=FIRST_ROW * process):
        found.append(_about("thread_name", process, number, name=row.label))
        found.append(_about("thread_sort_index", process, number, sort_index=number))
        for piece in row.slices:
            found.append(
                _slice(profile, execution, piece, process, number, again=piece.node in homes)
            )
            homes.setdefault(piece.node, number)
    found += _flows(execution, timeline, process, homes, flow)
    for time, count in corunning(timeline.slices):
        found.append(_counter("ops", process, time, "in flight", count))
    base = profile.memory.live if profile.memory else 0
    for time, size in live_bytes(execution.step, timeline.whole):
        found.append(_counter("memory", process, time, "bytes (estimate)", base + size))
    return found


def _slice(
    profile: Profile, execution: Execution, piece: Slice, process: int, row: int, *, again: bool
) -> Event:
    node = execution.step.nodes[piece.node]
    arguments: dict[str, Any] = {"node": visible(node.name, NAME), "runs": node.repeats}
    if node.op is not None:
        op = profile.ops[node.op]
        arguments["key"] = visible(op.key, KEY)
        if op.own is not None:
            arguments["own_seconds"] = op.own
    arguments["output_bytes"] = node.output_bytes
    name, category = node.type, "core" if again else "op"
    if node.received and node.partner:
        name, category = node.partner.tensor, "transfer"
        arguments["sender"], arguments["receiver"] = map(visible, node.received)
        arguments["bytes"] = sum(tensor.bytes for tensor in node.outputs)
    if piece.cores:
        arguments["cores"] = ", ".join(map(str, piece.cores))
    return {
        "ph": "X",
        "name": visible(name, NAME),
        "cat": category,
        "pid": process,
        "tid": row,
        "ts": piece.start / 1e3,
        "dur": (piece.end - piece.start) / 1e3,
        "args": arguments,
    }


def _flows(
    execution: Execution, timeline: Timeline, process: int, homes: Mapping[int, int], flow: int
) -> Iterator[Event]:
    """From each op to those that wait for it; a flow belongs to the slice it begins or ends in.

    Only forward in time: a loop's values flow back, which Perfetto does not draw.
    """
    drawn = {piece.node: piece for piece in timeline.whole}
    for piece in timeline.whole:
        node = execution.step.nodes[piece.node]
        for kind, before in (("data", node.inputs), ("control", node.control)):
            for other in dict.fromkeys(before):
                source = drawn.get(other)
                if source is None or source.start > piece.start or source is piece:
                    continue
                flow += 1
                same = {"name": kind, "cat": "dependency", "id": flow, "pid": process}
                end = homes[piece.node]
                yield {**same, "ph": "s", "tid": homes[other], "ts": source.start / 1e3}
                yield {**same, "ph": "f", "bp": "e", "tid": end, "ts": piece.start / 1e3}


def _about(what: str, process: int, thread: int, **told: str | int) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": told}


def _counter(name: str, process: int, time: int, series: str, value: int) -> Event:
    """Perfetto joins the name and the series' to one, chrome://tracing shows both."""
    return {"ph": "C", "name": name, "pid": process, "ts": time / 1e3, "args": {series: value}}
