"""What Perfetto makes of the traces: its trace processor is asked, in its UI, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import exhibits
import msgspec
import pytest
from perfetto_ui import THREADS, Ui, all_is_read, opened, written

from dltune.report.perfetto import trace
from dltune.report.timeline import executions
from dltune.schemas.plan import Plan
from dltune.schemas.profile import Profile
from dltune.views import Context, Loaded

HOSTILE = (
    '"><img src=x onerror="window.caught=1"><script>window.caught=1</script>\u202e\x00\x1b[31m'
)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return exhibits.profile()


@pytest.fixture(scope="module")
def plan(profile: Profile) -> Plan:
    return exhibits.plan(profile, "per-type+co-run")


@pytest.fixture(scope="module")
def made(profile: Profile, plan: Plan) -> bytes:
    documents = (("profile", profile), ("plan", plan))
    return trace(
        Context(
            tuple(
                Loaded(Path(f"{kind}.json"), f"dltune.{kind}", document, f"d{n}")
                for n, (kind, document) in enumerate(documents)
            )
        )
    )


@pytest.fixture(scope="module")
def ui(browser: Any, made: bytes) -> Iterator[Ui]:
    with opened(browser, made) as found:
        yield found


def test_it_reads_every_slice(ui: Ui, made: bytes) -> None:
    all_is_read(ui, written(made))


def test_slices_add_up_to_the_profiles_totals(ui: Ui, profile: Profile, plan: Plan) -> None:
    (step,) = profile.steps
    (execution,) = executions(profile, plan)[0]
    totals = [sum(piece.end - piece.start for piece in t.slices) for t in execution.timelines]
    assert totals[0] == sum(
        round(node.end * 1e9) - round(node.start * 1e9)
        for node in step.nodes
        if node.start is not None and node.end is not None
    )
    found = ui.query(
        f"select process.name, sum(dur) {THREADS} where category = 'op' group by pid order by pid"
    )
    assert found == [
        (f"{timeline.title}, step {step.name} of profile.json", total)
        for timeline, total in zip(execution.timelines, totals, strict=True)
    ]


def test_flows_lead_from_ops_to_those_that_depend(ui: Ui, made: bytes, profile: Profile) -> None:
    nodes = profile.steps[0].nodes
    depends = {
        (nodes[before].name, node.name) for node in nodes for before in node.inputs + node.control
    }
    found = ui.query(
        "select extract_arg(source.arg_set_id, 'args.node'), "
        "extract_arg(target.arg_set_id, 'args.node') "
        "from flow join slice source on slice_out = source.id "
        "join slice target on slice_in = target.id"
    )
    assert len(found) == sum(event["ph"] == "s" for event in written(made)) > 0
    assert set(found) <= depends


def test_counters_are_what_ran_and_what_it_held(ui: Ui, profile: Profile) -> None:
    counted = (
        "from counter join process_counter_track on track_id = process_counter_track.id "
        "join process using (upid) where process_counter_track.name ="
    )
    spans = [
        (round(node.start * 1e9), round(node.end * 1e9))
        for node in profile.steps[0].nodes
        if node.start is not None and node.end is not None
    ]
    flying = ui.query(f"select ts, value {counted} 'ops in flight' and pid = 1 order by ts")
    assert {moment for moment, _ in flying} == {moment for span in spans for moment in span}
    for moment, value in flying:
        assert value == sum(start <= moment < end for start, end in spans)
    assert profile.memory is not None
    memory = ui.query(
        "select pid, min(value), max(value) > min(value) "
        f"{counted} 'memory bytes (estimate)' group by pid"
    )
    assert memory == [(process, profile.memory.live, 1) for process in (1, 2, 3)]


def test_hostile_names_are_shown_and_not_obeyed(browser: Any, profile: Profile) -> None:
    step = profile.steps[0]
    nodes = tuple(
        msgspec.structs.replace(node, name=f"{HOSTILE}{n}" + "n" * 10_000, type=HOSTILE)
        for n, node in enumerate(step.nodes)
    )
    evil = msgspec.structs.replace(
        profile,
        steps=(msgspec.structs.replace(step, name=HOSTILE, nodes=nodes),),
        ops=tuple(msgspec.structs.replace(op, key=HOSTILE + op.key) for op in profile.ops),
    )
    # as Linux gives a name that is no UTF-8
    loaded = Loaded(Path("\udcff<script>.json"), "dltune.profile", evil, "d0")
    made = trace(Context((loaded,)))
    with opened(browser, made) as ui:
        ui.page.evaluate("app.trace.workspace.flatTracks.forEach(track => track.expand())")
        all_is_read(ui, written(made))
        assert ui.page.evaluate("window.caught") is None
        ((kind, node),) = ui.query(
            "select distinct slice.name, length(extract_arg(slice.arg_set_id, 'args.node')) "
            "from slice"
        )
        assert kind.startswith('"><img src=x')
        assert "\\u202e\\x00\\x1b[31m" in kind
        assert node < 300
        titles = [title for (title,) in ui.query("select name from process where pid > 0")]
        assert len(titles) == 3
        assert all(title.endswith("of \\udcff<script>.json") for title in titles)
