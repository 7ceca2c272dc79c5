"""Traces as PyTorch's profiler writes them, made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]
CONVOLUTION = {
    "Input Dims": [[2, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], []],
    "Input type": ["float", "float", "float", *["ScalarList"] * 3, "Scalar"],
    "Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"],
}


def op(name: str, ts: float, dur: float, tid: int = 7, **arguments: object) -> Event:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 5,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": arguments,
    }


def mark(name: str, ts: float, dur: float) -> Event:
    return {**op(name, ts, dur), "cat": "user_annotation"}


def memory(ts: float, total: int, device: int = 0) -> Event:
    told = {"Total Allocated": total, "Device Type": device, "Bytes": 1}
    return {**op("[memory]", ts, 0.0, **told), "ph": "i", "cat": "cpu_instant_event"}


def step(at: float, number: int, *more: Event) -> list[Event]:
    """Of 1 ms: data for 100 us, a convolution for 200, its backward for 300, an update for 100."""
    return [
        mark(f"ProfilerStep#{number}", at, 1000),
        mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 10, 100),
        op("aten::stack", at + 20, 50),
        op("aten::conv2d", at + 150, 200, **CONVOLUTION),
        op("aten::convolution", at + 160, 180, **CONVOLUTION),
        op("autograd::engine::evaluate_function: ConvolutionBackward0", at + 400, 320),
        op("ConvolutionBackward0", at + 405, 310),
        op("aten::convolution_backward", at + 410, 300),
        op("torch::autograd::AccumulateGrad", at + 730, 20),
        op("aten::detach", at + 735, 5),
        mark("Optimizer.step#SGD.step", at + 800, 150),
        op("aten::add_", at + 820, 100),
        *more,
    ]


def steps(count: int = 4) -> list[Event]:
    return [event for number in range(count) for event in step(1e9 + 1500.0 * number, number)]


def trace(events: Sequence[Event]) -> Event:
    return {"schemaVersion": 1, "traceEvents": list(events)}
