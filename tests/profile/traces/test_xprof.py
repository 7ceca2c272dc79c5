"""Traces of JAX's profiler as profiles."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.profile import trace_events, trace_import
from dltune.profile.trace_import import imported

MACHINE = synthetic.machine(2)
RECORDED = Path(__file__).parent / "recorded"
Trace = list[dict[str, Any]]


def process(name: str = "/host:CPU") -> dict[str, Any]:
    return {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": name}}


def op(name: str, ts: float, dur: float, run: int, tid: int = 1, **more: str) -> dict[str, Any]:
    told = {"hlo_op": name, "hlo_module": "jit_step", "run_id": str(run), **more}
    return {"ph": "X", "pid": 7, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": told}


def end(name: str, ts: float, tid: int = 2) -> dict[str, Any]:
    return {"ph": "X", "pid": 7, "tid": tid, "name": f"end: {name}", "ts": ts, "dur": 0.1}


def steps(number: int = 4) -> Trace:
    """Of 1 ms: a product that another thread ends, and beside its end a fusion; then a module that
    updates."""
    events = [process()]
    for run in range(number):
        at = 1e6 + 1000.0 * run
        events += [
            op("dot.3", at, 100, run),
            end("dot.3", at + 400),
            op("add-fusion", at + 300, 200, run, tid=2 + run % 2),
            op("while.1", at + 300, 200, run),
            op("add_fusion.2", at + 600, 100, 100 + run, hlo_module="jit_update"),
        ]
    return events


def kept(folder: Path, events: Trace) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_steps_and_ops_of_a_trace(tmp_path: Path) -> None:
    events = steps()
    random.Random(1).shuffle(events)  # no order is promised
    profile = imported(kept(tmp_path, events), MACHINE)
    assert struct_faults("", profile) == []
    assert profile.framework.title == "JAX"
    (step,) = profile.steps
    assert [node.name for node in step.nodes] == [
        "jit_step/dot.3",
        "jit_step/add-fusion",
        "jit_update/add_fusion.2",
    ]
    assert step.wall.median == pytest.approx(1e-3)
    assert {op.type: op.own for op in profile.ops if op.type != "add_fusion"} == {
        "dot": pytest.approx(400e-6)
    }
    parts = {part.name: part.seconds for part in step.parts}
    assert parts["ops"] == pytest.approx(600e-6), "what runs at once counts once"
    assert sum(parts.values()) == pytest.approx(1e-3)
    assert profile.partial


def test_an_op_of_a_loop_is_known_by_its_turn(tmp_path: Path) -> None:
    events = [process()]
    for run in range(4):
        at = 1e6 + 1000.0 * run
        events += [op("dot.3", at + 100 * turn, 50, run) for turn in range(3)]
    (step,) = imported(kept(tmp_path, events), MACHINE).steps
    assert [node.name for node in step.nodes] == [
        f"jit_step/dot.3{turn}" for turn in ("", "_2", "_3")
    ]


@given(st.integers(0, 10_000))
def test_an_op_has_ended_where_the_file_marks_it(seed: int) -> None:
    """Whichever threads begin and end it, and whatever runs beside it."""
    lot = random.Random(seed)
    names = [f"op.{number}" for number in range(lot.randint(1, 6))]
    events, expected = [process()], []
    at = 1e6
    for run in range(4):
        length: dict[str, float] = {}
        first = lot.choice(names)
        for name in names:
            start = at if name == first else at + lot.randint(1, 50)
            dur, late = lot.randint(1, 40), lot.choice([0, lot.randint(1, 40)])
            events.append(op(name, start, dur, run, tid=lot.randint(1, 3)))
            if late or lot.random() < 0.5:
                events.append(end(name, start + dur + late - 0.1 * (not late), lot.randint(1, 3)))
            length[name] = dur + late
        expected.append(length)
        at += 1000
    lot.shuffle(events)
    data = json.dumps({"traceEvents": events}).encode()
    told = trace_import.xprof_messages(trace_events.decoded(data, "a trace"), "a trace")
    graphs = {m.id: m for m in told.messages if isinstance(m, trace_import.protocol.Graph)}
    runs = [m for m in told.messages if isinstance(m, trace_import.protocol.Execution)]
    assert len(graphs) == 1
    for run, length in zip(runs, expected[:3], strict=True):
        nodes = graphs[run.graph].nodes
        lasted = {nodes[node].name: (e - s) / 1000 for node, _, _, _, s, e, _ in run.events}
        assert lasted == {f"jit_step/{name}": value for name, value in length.items()}


def test_ops_of_an_accelerator(tmp_path: Path) -> None:
    events = [process("/device:TPU:0"), *steps()[1:]]
    with pytest.raises(UsageError, match="ran on /device:TPU:0"):
        imported(kept(tmp_path, events), MACHINE)


def test_too_few_steps(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no XLA module ran three times"):
        imported(kept(tmp_path, steps(2)), MACHINE)


@pytest.mark.parametrize("odd", [{"hlo_op": 3}, {"hlo_module": []}, {"run_id": {}}])
def test_arguments_of_another_kind_are_told(tmp_path: Path, odd: dict[str, object]) -> None:
    events = steps()
    events[1]["args"].update(odd)
    with pytest.raises(UsageError, match=r"the arguments of event 'dot\.3'"):
        imported(kept(tmp_path, events), MACHINE)


def test_what_jax_has_written() -> None:
    """A perceptron of three layers, its gradients and their update, by JAX 0.10; only what is read
    of each event is kept."""
    profile = imported(RECORDED / "small_perceptron_jax.json.gz", MACHINE)
    assert struct_faults("", profile) == []
    (step,) = profile.steps
    assert len(step.nodes) == 19
    assert step.executions == 5  # of six: where the last ends is not known
    assert {node.type for node in step.nodes} >= {"dot", "wrapped_tanh", "multiply_add_fusion"}
    assert sum(part.seconds for part in step.parts) == pytest.approx(step.wall.median, rel=0.05)
    own = {op.key: op.own or 0.0 for op in profile.ops}
    assert max(own, key=own.__getitem__) == "dot(){hlo_module=jit_step, hlo_op=dot.3}"
