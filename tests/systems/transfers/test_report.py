"""A worker whose parameters come from a server: its links beside its ops, and E."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import exhibits
import exhibits_transfers
import msgspec
import pytest
from page_parsed import parsed
from served import SERVER, WORKER

from dltune.report.page import page
from dltune.report.perfetto import trace
from dltune.report.timeline import Timeline, executions
from dltune.views import Context, Loaded


@pytest.fixture(scope="module")
def context() -> Context:
    worker = exhibits_transfers.worker()
    documents = {"profile": worker, "plan": exhibits_transfers.ordered(worker)}
    return Context(
        tuple(
            Loaded(Path(f"{kind}.json"), f"dltune.{kind}", document, kind)
            for kind, document in documents.items()
        )
    )


def rows(timeline: Timeline) -> list[list[tuple[int, float, float]]]:
    return [
        [(piece.node, piece.start / 1e9, piece.end / 1e9) for piece in row.slices]
        for row in (*timeline.links, *timeline.rows)
    ]


def test_the_planned_order_beside_none(context: Context) -> None:
    profile, plan = (loaded.document for loaded in context.documents)
    ((execution,), _) = executions(profile, plan)
    found = {timeline.title: timeline for timeline in execution.timelines}
    planned = found["simulated: transfers improved, one op at a time"]
    assert rows(planned) == [[(1, 0, 1), (0, 1, 2)], [(2, 1, 2), (3, 2, 3)]]
    assert rows(found["measured"]) == [[(0, 0, 1), (1, 1, 2)], [(2, 2, 3), (3, 3, 4)]]
    assert "simulated: no order of transfers, one op at a time" in found
    own, _ = executions(profile, None)
    assert not [t for t in own[0].timelines if "one op at a time" in t.title]


def test_the_page_tells_of_tensors_and_efficiency(context: Context) -> None:
    found = parsed(page(context))
    (section,) = (e for e in found.of("section") if e.attributes["id"] == "profile-timeline0")
    # two seconds of transfers, then two of ops
    assert (
        "took 4000.0 ms. The lower bound is 2000.0 ms (L: only its ops, or only its busiest link), "
        "and the upper bound 4000.0 ms (U: nothing overlaps). Its efficiency E is 0.00"
        in section.text
    )
    (source,) = (e for e in found.of("script") if e.attributes.get("id") == "profile-slices0")
    drawn = json.loads(source.text)
    told = drawn["keys"][drawn["ops"][drawn["names"].index("first_S1")]]
    assert told == f"first (1,048,576 bytes, {SERVER} to {WORKER})"
    assert [row["label"] for row in drawn["timelines"][0]["links"]] == ["from ps:0"]


def test_step_times_and_efficiency_by_setting(context: Context) -> None:
    profile, plan = (loaded.document for loaded in context.documents)
    bench = exhibits.bench(plan, profile, {"own": [0.2, 0.3, 0.4], "plan": [0.1, 0.2, 0.3]})
    settings = [
        msgspec.structs.replace(
            setting,
            turns=tuple(msgspec.structs.replace(t, scheduling=(e, e)) for t in setting.turns),
        )
        for setting, e in zip(bench.settings, (0.25, 0.75), strict=True)
    ]
    for made, told in ((bench, False), (msgspec.structs.replace(bench, settings=settings), True)):
        found = parsed(page(Context((Loaded(Path("bench.json"), "dltune.bench", made, "d0"),))))
        (section,) = (e for e in found.of("section") if e.attributes["id"] == "d0-steps")
        assert "own: half at most 301.50 ms" in section.text
        assert ("plan: half at most 0.75, 90 % from 0.75 to 0.75" in section.text) == told
        assert (
            "Measured, the plan (transfers improved) is faster than own" in found.of("main")[0].text
        )


def test_a_page_without_transfers_says_nothing_of_them() -> None:
    alone = Loaded(Path("profile.json"), "dltune.profile", exhibits.profile(), "d0")
    text = parsed(page(Context((alone,)))).of("main")[0].text
    assert "rows of links" not in text
    assert "efficiency E" not in text


def test_perfetto_has_transfers_on_tracks_of_their_own(context: Context) -> None:
    events = json.loads(gzip.decompress(trace(context)))["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    travels = [e for e in events if e.get("cat") == "transfer" and e["pid"] == 1]
    assert [(e["name"], e["ts"], e["dur"]) for e in travels] == [
        ("second", 0.0, 1e6),
        ("first", 1e6, 1e6),
    ]
    assert {named[e["pid"], e["tid"]] for e in travels} == {"from ps:0"}
    arguments = travels[0]["args"]
    told = {name: arguments[name] for name in ("sender", "receiver", "bytes")}
    assert told == {"sender": SERVER, "receiver": WORKER, "bytes": 1 << 20}
    # from each to the op that waits for it
    starts = [(e["ts"], e["tid"]) for e in events if e["ph"] == "s" and e["pid"] == 1]
    assert {(e["ts"], e["tid"]) for e in travels} <= set(starts)
    flying = [e["args"]["in flight"] for e in events if e["ph"] == "C" and e["pid"] == 1
              and e["name"] == "ops"]  # fmt: skip
    assert max(flying) == 1
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert sum("one op at a time" in name for name in processes) == 2


def test_receives_that_were_answers_alone_have_no_efficiency() -> None:
    made = exhibits_transfers.worker()
    (step,) = made.steps
    answered = tuple(
        msgspec.structs.replace(n, partner=msgspec.structs.replace(n.partner, answer=True))
        if n.partner
        else n
        for n in step.nodes
    )
    made = msgspec.structs.replace(made, steps=(msgspec.structs.replace(step, nodes=answered),))
    alone = Loaded(Path("profile.json"), "dltune.profile", made, "d0")
    text = parsed(page(Context((alone,)))).of("main")[0].text
    assert "rows of links" in text
    assert "efficiency E" not in text
