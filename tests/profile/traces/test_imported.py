"""Traces of PyTorch's profiler as profiles."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import kineto_trace
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from dltune.analysis.flops import operations
from dltune.base import documents
from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.profile import trace_events, trace_import
from dltune.profile.trace_import import imported
from dltune.schemas import profile as doc

MACHINE = synthetic.machine(2)
RECORDED = Path(__file__).parent / "recorded"
CONVOLUTION = (
    "aten::conv2d(float[2,3,8,8],float[4,3,3,3],float[4])"
    "{stride=[1,1], padding=[1,1], dilation=[1,1], groups=1}"
)


def kept(folder: Path, events: list[kineto_trace.Event], name: str = "trace.json") -> Path:
    path = folder / name
    data = json.dumps(kineto_trace.trace(events)).encode()
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return path


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_steps_and_ops_of_a_trace(tmp_path: Path, name: str) -> None:
    events = kineto_trace.steps()
    random.Random(1).shuffle(events)  # no order is promised
    profile = imported(kept(tmp_path, events, name), MACHINE)
    assert struct_faults("", profile) == []
    assert profile.framework.title == "PyTorch"
    (step,) = profile.steps
    assert [node.type for node in step.nodes] == [
        "DataLoader",
        "aten::conv2d",
        "aten::convolution_backward",
        "torch::autograd::AccumulateGrad",
        "aten::add_",
    ]
    assert [node.control for node in step.nodes] == [(), (0,), (1,), (2,), (3,)]
    assert step.executions == 3  # the first pays for the profiler's start
    assert step.wall.median == pytest.approx(1.5e-3)
    times = {op.type: op.own for op in profile.ops}
    assert times["aten::conv2d"] == pytest.approx(200e-6)
    assert times["aten::convolution_backward"] == pytest.approx(300e-6)
    assert CONVOLUTION in {op.key for op in profile.ops}
    parts = {part.name: part.seconds for part in step.parts}
    assert parts["ops"] == pytest.approx(620e-6)
    assert parts["input"] == pytest.approx(100e-6)
    assert sum(parts.values()) == pytest.approx(1.5e-3)
    assert profile.partial


def test_without_the_profiler_s_steps_an_optimizer_s_are_taken(tmp_path: Path) -> None:
    events = [one for one in kineto_trace.steps(5) if "ProfilerStep" not in one["name"]]
    (step,) = imported(kept(tmp_path, events), MACHINE).steps
    assert step.executions == 3  # of four between five optimizers' ends
    assert step.nodes[0].type == "DataLoader"


def test_memory(tmp_path: Path) -> None:
    at = [1e9 + 1500.0 * number for number in range(4)]
    events = kineto_trace.steps()
    for began in at:
        levels = [(began - 1, 100), (began + 160, 500), (began + 500, 900), (began + 720, 100)]
        events += [kineto_trace.memory(*level) for level in levels]
        events.append(kineto_trace.memory(began + 600, 7_000, device=1))  # a GPU's
    profile = imported(kept(tmp_path, events), MACHINE)
    assert profile.memory == doc.Memory(live=100, peak=900)
    live = {node.type: node.live for node in profile.steps[0].nodes}
    assert (live["aten::conv2d"], live["aten::convolution_backward"]) == (500, 900)


@pytest.mark.parametrize(("every", "steps"), [(2, [5, 6]), (3, [5])])
def test_a_step_that_differs_is_another_graph(tmp_path: Path, every: int, steps: list[int]) -> None:
    """One that reads its loss; now and then it is no step of its own."""
    events = []
    for number in range(9):
        at = 1e9 + 1500.0 * number
        more = [kineto_trace.op("aten::item", at + 960, 5)] if number % every == 0 else []
        events += kineto_trace.step(at, number, *more)
    profile = imported(kept(tmp_path, events), MACHINE)
    assert sorted(len(step.nodes) for step in profile.steps) == steps


def test_a_step_that_comes_now_and_then_takes_no_longer_for_it(tmp_path: Path) -> None:
    """As with sentences of any length, of which few are alike."""
    events = []
    for number in range(20):
        at = 1e9 + 1500.0 * number
        own = [kineto_trace.op(f"aten::of_{number}", at + 960, 5)] if number % 6 else []
        events += kineto_trace.step(at, number, *own)
    (step,) = imported(kept(tmp_path, events), MACHINE).steps
    assert step.executions == 3
    assert step.wall.median < 1.5e-3
    parts = {part.name: part.seconds for part in step.parts}
    assert sum(parts.values()) < 1.5e-3


def tree(lot: random.Random, began: float, length: float, depth: int) -> list[kineto_trace.Event]:
    """Nested calls, and where no op is the caller."""
    names = ("aten::a", "aten::b", "Backward0", "autograd::engine::evaluate_function: x", "mine::c")
    found = [kineto_trace.op(lot.choice(names), began, length)]
    at = began
    while depth and lot.random() < 0.7 and at + 2 < began + length:
        at += lot.choice([0.0, 1.0])
        inner = lot.uniform(1, began + length - at)
        found += tree(lot, at, inner, depth - 1)
        at += inner
    return found


def called_by_none(events: list[kineto_trace.Event]) -> list[str]:
    """By asking of each op whether any other that came before it in the file's order holds it."""
    ops = [one for one in events if one["name"].startswith(("aten::", "mine::"))]
    found = []
    for place, one in enumerate(ops):
        holders = (
            other["ts"] <= one["ts"] and one["ts"] + one["dur"] <= other["ts"] + other["dur"] + 1e-6
            for other in ops[:place]
        )
        if not any(holders):
            found.append(one)
    return [one["name"] for one in sorted(found, key=lambda one: one["ts"])]


@given(st.integers(0, 10_000))
def test_ops_that_no_other_has_called(seed: int) -> None:
    lot = random.Random(seed)
    events = []
    for number in range(2):
        at = 1e6 + 1e4 * number
        inside = [one for place in range(5) for one in tree(lot, at + 100 + 1e3 * place, 900.0, 3)]
        events.append((kineto_trace.mark(f"ProfilerStep#{number}", at, 9e3), inside))
    for number, (_, inside) in enumerate(events):
        for order, one in enumerate(inside):
            one["args"]["External id"] = order + 1000 * number
    flat = [one for step, inside in events for one in (step, *inside)]
    data = json.dumps(kineto_trace.trace(flat)).encode()
    told = trace_import.kineto_messages(trace_events.decoded(data, "a trace"), "a trace")
    graphs = {m.id: m for m in told.messages if isinstance(m, trace_import.protocol.Graph)}
    runs = [m for m in told.messages if isinstance(m, trace_import.protocol.Execution)]
    expected = [called_by_none(inside) for _, inside in events]
    assert [[n.type for n in graphs[run.graph].nodes] for run in runs] == [e for e in expected if e]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x89PNG", "is not a trace in Chrome's format"),
        (b"[]", "is not a trace in Chrome's format"),
        (b"\x1f\x8b damaged", "is a damaged gzip file"),
        (b'{"traceEvents": ' + b"[" * 100_000, "is not a trace in Chrome's format"),
        (b'{"traceEvents": [{"args": ' + b"[" * 100_000, "is not a trace in Chrome's format"),
        (b'{"traceEvents": [{"ts": 1e308}]}', "is not a trace in Chrome's format"),
        (b'{"traceEvents": []}', "contains no ops of PyTorch or JAX"),
    ],
)
def test_what_is_no_such_trace(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=why):
        imported(path, MACHINE)


def test_a_trace_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kept(tmp_path, kineto_trace.steps(), "t.json.gz")
    monkeypatch.setattr(documents, "LONGEST", 2000)
    with pytest.raises(UsageError, match="is larger than"):
        imported(path, MACHINE)


def test_a_trace_of_too_many_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_events, "MOST", 20_000)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b"{}," * 20_000 + b"{}]}"))
    with pytest.raises(UsageError, match="events and arguments"):
        imported(path, MACHINE)


def test_steps_that_cannot_be_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains fewer than two steps"):
        imported(kept(tmp_path, kineto_trace.step(1e9, 0)), MACHINE)
    events = []
    for number in range(4):
        at = 1e9 + 1500.0 * number
        events += kineto_trace.step(at, number, kineto_trace.op(f"aten::op{number}", at + 960, 5))
    with pytest.raises(UsageError, match="4 steps that all differ in their ops"):
        imported(kept(tmp_path, events), MACHINE)


@pytest.mark.parametrize(
    "arguments", [{"Input Dims": 3}, {"Input type": [1]}, {"External id": "x"}]
)
def test_arguments_of_another_kind_are_told(tmp_path: Path, arguments: dict[str, object]) -> None:
    events = [*kineto_trace.steps(), kineto_trace.op("aten::odd", 1e9 + 970, 5, **arguments)]
    with pytest.raises(UsageError, match="the arguments of event 'aten::odd'"):
        imported(kept(tmp_path, events), MACHINE)


@pytest.mark.parametrize("dims", [[["x"]], [[-1]], [[[1]]], [{}], [None], [[10**17, 2]]])
def test_shapes_of_another_kind_are_no_shapes(tmp_path: Path, dims: list[object]) -> None:
    odd = {"Input Dims": dims, "Input type": ["float"]}
    events = []
    for number in range(3):
        at = 1e9 + 1500.0 * number
        events += kineto_trace.step(at, number, kineto_trace.op("aten::odd", at + 970, 5, **odd))
    profile = imported(kept(tmp_path, events), MACHINE)
    assert "aten::odd()" in {op.key for op in profile.ops}


def test_what_a_gpu_has_run_is_refused(tmp_path: Path) -> None:
    kernel = {**kineto_trace.op("ampere_sgemm_64x64", 1e9 + 970, 5), "cat": "kernel"}
    with pytest.raises(UsageError, match="ran on a GPU"):
        imported(kept(tmp_path, [*kineto_trace.steps(), kernel]), MACHINE)


def test_what_pytorch_has_written() -> None:
    """Two convolutions with batch norm, dropout and Adam, by PyTorch 2.13; only what is read of
    each event is kept."""
    profile = imported(RECORDED / "small_convolution.json.gz", MACHINE)
    assert struct_faults("", profile) == []
    (step,) = profile.steps
    assert step.executions == 3
    types = [node.type for node in step.nodes]
    assert types[0] == "DataLoader"
    order = ["aten::conv2d", "aten::batch_norm", "aten::relu", "aten::max_pool2d", "aten::conv2d"]
    assert [one for one in types if one in set(order)][:5] == order
    assert types.index("aten::cross_entropy_loss") < types.index("aten::convolution_backward")
    assert not {one for one in types if "Backward0" in one or "::" not in one} - {"DataLoader"}
    assert sum(part.seconds for part in step.parts) == pytest.approx(step.wall.median, rel=0.05)
    by_type = {op.type: op for op in profile.ops}
    # 32 images of 32x32, 3x3 windows less those at the border, 3 channels to 16, a bias
    pairs = (3 * 32 - 2) ** 2
    first = next(op for op in profile.ops if "float[32,3,32,32],float[16,3,3,3]" in op.key)
    assert operations(first) == 32 * (2 * pairs * 3 * 16 + 32 * 32 * 16)
    assert operations(by_type["aten::linear"]) == 32 * 10 * (2 * 512 + 1)
    back = [op for op in profile.ops if op.type == "aten::convolution_backward"]
    assert len(back) == 2
    assert all(operations(op) for op in back)
    assert profile.memory
    assert profile.memory.peak > profile.memory.live > 0


def test_spans_that_end_before_they_begin_and_memory_below_nothing(tmp_path: Path) -> None:
    events = []
    for number in range(3):
        at = 1e9 + 1500.0 * number
        odd = [kineto_trace.op("aten::odd", at + 970, -5), kineto_trace.memory(at + 1, -7)]
        events += kineto_trace.step(at, number, *odd)
    assert struct_faults("", imported(kept(tmp_path, events), MACHINE)) == []
