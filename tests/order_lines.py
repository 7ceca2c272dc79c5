"""Lines of orders, and what a plugin without a framework answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st
from native_programs import CORE, MEMORY, run

from dltune.job.protocol import encoded

MACHINE = ["core\t0\t0", "core\t1\t1", "cores"]
VALID = [
    "begin\t7",
    "events\t1",
    "discover\t0",
    "serial\t0",
    "admission\t1",
    "hyperthreads\t1",
    "barrier\t0",
    "small\t1e-05",
    "target\t00ff",
    "counter\t0\t1\t0\t0\t1",
    "default\t2\t0,1",
    "op\tMatMul\t2\t0,1",
    "corun\tConv2D\t0.5\t2:0:0.25\t1:1:0.5\t2:1:0.25",
    "end",
    "alternate\t7\t7",
    "uniform\t2\t0",
    "count\t1",
    "detach\t1",
    "grant\t3",
]


def answers(lines: Sequence[str], parts: tuple[Path, ...] = ()) -> list[str]:
    """What a plugin with `parts` complains of, for each line; empty: of nothing."""
    said, _ = run(CORE / "obey.cc", MEMORY, told=encoded(lines), parts=parts)
    return said.split("\n")[: len(lines)]


def asked(key: str) -> str:
    return "?" + key.encode("latin-1").hex()


@st.composite
def mutated(draw: st.DrawFn, valid: Sequence[str]) -> list[str]:
    """Lines of a conversation, in each of which some characters are others."""
    pieces = st.sampled_from([*"\t,:\\-.0129e", "99999999999999999999", "nan", "begin", "end", "é"])
    lines = []
    for line in draw(st.lists(st.sampled_from(valid), max_size=40)):
        at = draw(st.integers(0, len(line)))
        lines.append(line[:at] + draw(pieces) + line[at + draw(st.integers(0, 2)) :])
    return lines


def require_answered(lines: Sequence[str], parts: tuple[Path, ...] = ()) -> None:
    """Nothing crashes, and the answer to the last valid snapshot is right whatever came before."""
    last = ["begin\t99", "op\tMatMul\t2\t1", "end", asked("MatMul")]
    assert answers([*MACHINE, *lines, *last], parts)[-4:] == ["", "", "", "99 2"]
