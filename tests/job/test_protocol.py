"""The text of orders."""

from __future__ import annotations

import msgspec
from synthetic import machine

from dltune.job.protocol import Orders, alternate_line, grant_line, machine_lines, uniform_line
from dltune.schemas.plan import Candidate


def test_orders_stand_between_begin_and_end():
    lines = Orders(3, targets=["abc"], events=True, serial=True, fallback=(2, (0, 1))).lines()
    assert lines == [
        "begin\t3",
        "events\t1",
        "serial\t1",
        "target\tabc",
        "small\t0.0",
        "default\t2\t0,1",
        "end",
    ]


def test_idle_orders_change_nothing():
    assert Orders(7).lines() == ["begin\t7", "small\t0.0", "end"]


def test_ops_and_their_ways():
    choice, other = Candidate(2, "shared", 0.5), Candidate(1, "spread", 1e-05)
    lines = Orders(
        1,
        small=1e-05,
        ops={"Mul(f[1]){a=b, c=d}": (1, (3,))},
        corun={"Add()": (0.25, choice, (other,))},
    ).lines()
    assert "op\tMul(f[1]){a=b, c=d}\t1\t3" in lines
    assert "corun\tAdd()\t0.25\t2:1:0.5\t1:0:1e-05" in lines
    assert "admission\t1" in lines
    assert "small\t1e-05" in lines


def test_tiles_are_numbered_from_0_whatever_their_names():
    there = machine(4, tile=2, hardware=2)
    cores = tuple(msgspec.structs.replace(c, tile=c.tile * 10 + 5) for c in there.cores)
    lines = machine_lines(msgspec.structs.replace(there, cores=cores))
    assert lines == ["core\t0\t0,4", "core\t0\t1,5", "core\t1\t2,6", "core\t1\t3,7", "cores"]


def test_single_lines():
    assert uniform_line(4, 0) == "uniform\t4\t0"
    assert alternate_line([1, 1, 2]) == "alternate\t1\t1\t2"
    assert grant_line(5) == "grant\t5"
