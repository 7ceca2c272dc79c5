"""`dltune show`, and the derived figures that it shares with `dltune profile`."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest
from click.testing import CliRunner
from keyed import keyed
from synthetic import machine, node, profile

from dltune.base.errors import UsageError
from dltune.cli import cli
from dltune.schemas.profile import (
    Counters,
    Line,
    Part,
    Ratio,
    Total,
)

CLOCK = {"page-faults": 3.0, "context-switches": 0.2, "task-clock": 38e-3}
PMU = {**CLOCK, "instructions": 9e7, "cycles": 6e7, "LLC-load-misses": 1e4, "LLC-loads": 1e5}


def made(counts, counters=None):
    there = msgspec.structs.replace(machine(2), shared_cache=1 << 20)
    ops = [
        keyed(
            "_MklMatMul(float[1000,1000],float[1000,1000]){transpose_a=false, transpose_b=false}",
            4_000_000,
            seconds={1: 38e-3, 2: 20e-3},
            counts=counts,
        ),
        keyed("Relu(float[1000000])", 4_000_000, seconds={1: 1e-3, 2: 0.6e-3}, counts=counts),
        keyed("StatelessRandomUniformV2(int32[2])", 4_000, seconds={1: 1e-4, 2: 1e-4}),
        keyed("IteratorGetNext()"),
    ]
    nodes = [node(op.type, index) for index, op in enumerate(ops)]
    found = profile(there, ops, {"train": nodes}, span=0.03, between=0.02)
    step = msgspec.structs.replace(
        found.steps[0],
        parts=(Part("ops", 0.029), Part("executor", 0.001), Part("input", 0.0),
               Part("python", 0.02)),
        lines=(Line("train.py:12", 0.8),),
    )  # fmt: skip
    return msgspec.structs.replace(found, steps=(step,), counters=counters)


@pytest.fixture
def show(tmp_path):
    def shown(document, *options):
        path = tmp_path / "profile.json"
        path.write_bytes(msgspec.json.encode(document))
        result = CliRunner().invoke(cli, ["show", str(path), *options], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    return shown


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "document.json"

    def write(document):
        path.write_bytes(msgspec.json.encode(document))
        return str(path)

    return write


def section(text, title):
    lines = text.splitlines()
    start = lines.index(title)
    rest = lines[start + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def test_a_step_s_parts_and_what_costs_the_most(show):
    text = show(made({}))
    assert "  of which ops 29 ms (58%), executor 1 ms (2%), python 20 ms (40%)" in text
    assert "Python runs between the steps for 40% of the wall time" in text
    assert "Cost: 40% of the time (20 ms per step)" in text
    assert "Expected: up to 1.67x as fast (measured in this job)" in text
    assert "most often at train.py:12 (80%)" in text
    assert "written to" not in text


def test_without_counters_only_what_shapes_tell(show):
    head, *rows = section(show(made({})), "rates of these ops at their best thread count")
    assert head.split() == ["op", "GFLOP/s", "flop/B", "moves", "GB/s", "of", "roofline"]
    assert rows[0].split()[-5:] == ["100", "167", "0.6", "100%", "compute"]
    assert rows[3].startswith("peak, compute: 100 GFLOP/s (reached by _MklMatMul on 2 threads)")


def test_software_counters_add_their_columns(show):
    head, *rows = section(show(made(CLOCK)), "rates of these ops at their best thread count")
    assert "IPC" not in head
    assert "LLC" not in head
    assert head.split()[-5:] == ["faults", "switches", "CPU", "of", "roofline"]
    assert rows[0].split()[-5:] == ["3", "0.2", "95%", "100%", "compute"]


def test_all_columns_fit_120(show):
    text = show(made(PMU))
    head, first, *_ = section(text, "rates of these ops at their best thread count")
    for column in ("IPC", "LLC miss", "LLC GB/s", "faults", "switches", "CPU"):
        assert column in head
    assert "1.50" in first
    assert "10.0%" in first
    tables = [*section(text, "ops by time with one thread"), head, first]
    assert max(map(len, tables)) <= 120


def test_counts_that_were_scaled_up_say_so(show):
    document = made(PMU)
    assert "extrapolated" not in show(document)
    op = document.ops[0]
    counts = tuple(msgspec.structs.replace(c, running=0.4) for c in op.times[1].counts)
    times = (op.times[0], msgspec.structs.replace(op.times[1], counts=counts))
    changed = (msgspec.structs.replace(op, times=times), *document.ops[1:])
    text = show(msgspec.structs.replace(document, ops=changed))
    assert (
        "counts are extrapolated: at least one event was counted for only 40% of the time" in text
    )


def test_every_op_shown_has_its_sentence(show):
    lines = section(show(made({}), "--top", "2"), "reasons for these op times")
    assert len(lines) == 4
    assert lines[0].startswith("  _MklMatMul(float[1000,1000],float[1000,1000])")
    assert lines[1].startswith("      compute bound: 100 GFLOP/s")


def test_counters_tell_what_could_be_counted_and_where_it_happened(show):
    counters = Counters(
        asked="auto",
        why="software events, as there is no performance monitoring unit here",
        groups=(("page-faults", "task-clock"),),
        totals=(
            Total("page-faults", 700, 200, 95, 1000),
            Total("task-clock", 8.0, 1.0, 1.0, 10.0),
            Total("major-faults", 0, 0, 0, 0),
        ),
        overhead=Ratio(10, 0.991, 1.012, 1.03),
    )
    text = show(made(CLOCK, counters))
    assert "counters (auto): software events, as there is no performance monitoring unit" in text
    head, faults, clock, none, overhead = section(text, "events by place")
    assert head.split()[0] == "event"
    assert faults.split() == ["page-faults", "700", "200", "95", "1000", "99.5%"]
    assert clock.split()[-2:] == ["s", "100.0%"]
    assert none.split() == ["major-faults", "0", "0", "0", "0"]
    assert overhead == (
        "overhead of recording ops: a step takes 1.012x as long "
        "(95 % confidence interval 0.991 to 1.030, 10 pairs)"
    )


def test_json_has_the_derived_figures_of_each_op(show):
    found = json.loads(show(made(PMU), "--json"))
    assert found["roofline"]["compute"]["source"] == "_MklMatMul on 2 threads"
    assert found["steps"][0]["parts"]["python"] == 0.02
    assert [one["cause"] for one in found["findings"]] == ["between-steps"]
    assert len(found["ops"]) == 4
    first = found["ops"][0]
    assert first["operations"] == 2_000_000_000
    assert first["moved"] == 12_000_000
    assert first["best"] == {"threads": 2, "placement": "shared"}
    assert first["cause"] == "compute"
    one, two = first["cases"]
    assert (one["threads"], two["threads"]) == (1, 2)
    assert two["ipc"] == 1.5
    assert two["counts"][4] == {
        "event": "cycles",
        "value": 6e7,
        "spread": 0.0,
        "samples": 5,
        "running": 1.0,
    }
    assert found["ops"][-1]["best"] is None
    assert len(json.loads(show(made({}), "--json", "--top", "1"))["ops"]) == 1


def test_a_profile_without_measured_ops(show):
    text = show(profile(machine(2), [], {}))
    assert "these ops" not in text
    assert "why they" not in text


def test_csv_of_the_main_table_and_of_one_by_its_name(written):
    path = written(made(CLOCK))
    rows = [*csv.DictReader(io.StringIO(invoke(path, "--csv")))]
    assert [row["threads"] for row in rows] == ["1", "2", "1", "2", "1", "2", ""]
    assert rows[1]["flop_rate"] == repr(2e9 / 20e-3)
    assert json.loads(rows[0]["inputs"]) == ["float[1000,1000]", "float[1000,1000]"]
    events = csv.DictReader(io.StringIO(invoke("--csv", "counts", path)))
    assert {row["event"]: float(row["value"]) for row in events} == CLOCK


def test_csv_of_another_document(written):
    head, *rows = invoke(written(machine(2, tile=1)), "--csv").splitlines()
    assert head == "cores,cpus,tile,socket,numa"
    assert rows == ["0,[0],0,0,0", "1,[1],1,0,0"]


def test_csv_of_a_table_that_is_not_there(written):
    with pytest.raises(UsageError, match="no table 'nodes'"):
        invoke(written(machine(2)), "--csv", "nodes")
    for other in (["--json"], ["--top", "3"]):
        with pytest.raises(UsageError, match="cannot be combined with --json or --top"):
            invoke(written(machine(2)), "--csv", "cores", *other)
    with pytest.raises(UsageError, match=r"but a dltune.profile file is needed"):
        invoke(written(machine(2)))


def invoke(*arguments):
    result = CliRunner().invoke(
        cli, ["show", *arguments], catch_exceptions=False, standalone_mode=False
    )
    if result.exception:
        raise result.exception
    return result.stdout
