"""The trace for Perfetto: structure, and sums that are the profile's."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import exhibits
import msgspec
import pytest

from dltune.base.errors import UsageError
from dltune.report.perfetto import trace
from dltune.schemas.profile import Profile
from dltune.views import Context, Loaded


def context(profile: Profile, strategy: str | None = "per-type+co-run") -> Context:
    loaded = [Loaded(Path("profile.json"), "dltune.profile", profile, "d0")]
    if strategy:
        plan = exhibits.plan(profile, strategy)
        loaded.append(Loaded(Path("plan.json"), "dltune.plan", plan, "d1"))
    return Context(tuple(loaded))


def events(packed: bytes) -> list[dict[str, Any]]:
    return list(json.loads(gzip.decompress(packed))["traceEvents"])


def nanoseconds(time: float) -> int:
    found = round(time * 1e3)
    assert abs(time * 1e3 - found) < 1e-3, "times are whole nanoseconds"
    return found


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    return events(trace(context(exhibits.profile())))


def test_slices_of_a_row_never_overlap_and_none_is_empty(found: list[dict[str, Any]]) -> None:
    rows = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            start = nanoseconds(event["ts"])
            rows[event["pid"], event["tid"]].append((start, start + nanoseconds(event["dur"])))
    assert len({process for process, _ in rows}) == 3, "measured, own settings, plan"
    for slices in rows.values():
        slices.sort()
        assert all(end > start for start, end in slices)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices))


def test_slices_add_up_to_the_profiles_totals(found: list[dict[str, Any]]) -> None:
    profile = exhibits.profile()
    total = sum(
        round(n.end * 1e9) - round(n.start * 1e9)
        for n in profile.steps[0].nodes
        if n.start is not None and n.end is not None
    )
    measured = [e for e in found if e["ph"] == "X" and e["pid"] == 1 and e["cat"] == "op"]
    assert sum(nanoseconds(event["dur"]) for event in measured) == total
    names = {e["args"]["name"] for e in found if e["ph"] == "M" and e["name"] == "process_name"}
    assert any("measured" in name for name in names)
    assert any("plan per-type+co-run" in name for name in names)


def test_an_op_is_one_slice_of_category_op(found: list[dict[str, Any]]) -> None:
    for process in (1, 2, 3):
        nodes = [
            e["args"]["node"]
            for e in found
            if e["ph"] == "X" and e["pid"] == process and e["cat"] == "op"
        ]
        assert len(nodes) == len(set(nodes))


def test_flows_begin_and_end_in_slices_of_ops_that_depend(found: list[dict[str, Any]]) -> None:
    nodes = exhibits.profile().steps[0].nodes
    number = {node.name: index for index, node in enumerate(nodes)}
    at = {(e["pid"], e["tid"], e["ts"]): number[e["args"]["node"]] for e in found if e["ph"] == "X"}
    starts = {e["id"]: at[e["pid"], e["tid"], e["ts"]] for e in found if e["ph"] == "s"}
    ends = {e["id"]: at[e["pid"], e["tid"], e["ts"]] for e in found if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert starts
    for flow, before in starts.items():
        assert before in (*nodes[ends[flow]].inputs, *nodes[ends[flow]].control)


def test_counters_end_where_nothing_is_left(found: list[dict[str, Any]]) -> None:
    for name, unit, idle in (("ops", "in flight", 0), ("memory", "bytes (estimate)", 2**20)):
        for process in (1, 2, 3):
            track = [
                e for e in found if e["ph"] == "C" and (e["pid"], e["name"]) == (process, name)
            ]
            times = [event["ts"] for event in track]
            assert times == sorted(set(times))
            assert track[-1]["args"][unit] == idle
            assert max(event["args"][unit] for event in track) > idle


def test_hostile_names_are_shown() -> None:
    profile = exhibits.profile()
    step = profile.steps[0]
    nodes = tuple(
        msgspec.structs.replace(node, name=f"\u202e<script>\x00{index}" + "n" * 10_000)
        for index, node in enumerate(step.nodes)
    )
    profile = msgspec.structs.replace(
        profile, steps=(msgspec.structs.replace(step, nodes=nodes, name="\x1b[31m"),)
    )
    made = trace(context(profile, None))
    text = gzip.decompress(made).decode()
    assert "\u202e" not in json.dumps(json.loads(text), ensure_ascii=False)
    assert all(len(e["args"]["node"]) < 300 for e in events(made) if e["ph"] == "X")


def test_no_timeline_is_said() -> None:
    profile = msgspec.structs.replace(exhibits.profile(), steps=())
    with pytest.raises(UsageError, match="no timeline"):
        trace(context(profile, None))
