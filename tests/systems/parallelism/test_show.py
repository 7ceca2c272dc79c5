"""The section for people."""

from __future__ import annotations

import itertools

import divided
import msgspec

from dltune.base.formatting import Key, Table, Tiles
from dltune.systems.parallelism import show
from dltune.systems.parallelism.planner import PLANNER
from dltune.systems.parallelism.schemas.strategy import Divided, Parallelism, Times
from dltune.systems.parallelism.show import MOST, tiles

SECTION = divided.section()


def plain(*operators: Divided, devices: int = 8) -> Parallelism:
    names = tuple(f"d{n}" for n in range(devices))
    return msgspec.structs.replace(SECTION, devices=names, operators=operators)


def operator(name: str, degrees: tuple[int, ...], devices: tuple[int, ...], **more: object):
    replicas = len(devices) // (degrees[0] * degrees[1])
    return Divided(name, "product", ("sample", "channel"), degrees, replicas, devices, **more)


def tables(section: Parallelism) -> list[Table]:
    shown = PLANNER.show(section, None, [])
    return [one for part in shown.sections for one in part.body if isinstance(one, Table)]


def test_the_plan_stands_last_beside_what_it_is_compared_with() -> None:
    compared = tables(SECTION)[0]
    names = [row[0] for row in compared.rows]
    assert names == [*(one.name for one in SECTION.baselines), "planned"]
    first, own = SECTION.baselines[0].seconds, SECTION.seconds
    assert compared.rows[0][3] == "1.00"
    assert compared.rows[-1][3] == f"{first / own:.2f}"


def test_the_gap_is_told() -> None:
    section = msgspec.structs.replace(SECTION, seconds=0.01, bound=0.009, proof="a way")
    assert show.choice(section) == "10.00 ms per step on 4 devices, gap to the bound 10.0%"
    shown = show.shown(section)
    told = [one for one in shown.sections[0].body if isinstance(one, str)]
    assert told == [
        "No strategy in this search space takes less than 9.00 ms (proven by a way): the gap to "
        "the best is at most 10.0%."
    ]
    assert "takes more than 10.0% less" in shown.headlines[0].sentence
    best = show.shown(msgspec.structs.replace(section, bound=0.01))
    none = "no strategy in its search space takes less (proven by a way)"
    assert none in best.headlines[0].sentence
    assert "No strategy in this search space takes less (proven by a way)." in best.sections[0].body
    unknown = msgspec.structs.replace(section, bound=None)
    assert "gap" not in show.choice(unknown)
    assert "space" not in show.shown(unknown).headlines[0].sentence


def test_operators_of_a_block_that_are_alike_stand_together() -> None:
    section = plain(
        operator("data", (8, 1), tuple(range(8))),
        operator("s0", (2, 1), (0, 1), block="steps"),
        operator("s1", (2, 1), (2, 3), block="steps"),
        operator("s2", (2, 1), (0, 1), block="steps"),
        operator("top", (1, 2), (1, 4), ),
        operator("copied", (1, 2), (0, 1, 2, 3)),
    )  # fmt: skip
    rows = [(row[0].text, *row[1:]) for row in tables(section)[1].rows if isinstance(row[0], Key)]
    assert rows == [
        ("data", "1", "sample 8", "all 8"),
        ("steps", "2", "sample 2", "d0 to d1"),
        ("steps", "1", "sample 2", "d2 to d3"),
        ("top", "1", "channel 2", "d1, d4"),
        ("copied", "1", "channel 2, each part on 2 devices", "d0 to d3"),
    ]


def test_what_the_times_rest_on_is_told() -> None:
    parts = Times("0" * 64, 7, "JAX 1", 2)
    for measured, times, told in (
        (True, None, "taken from the profile"),
        (False, None, "roofline"),
        (True, parts, "measured by JAX 1 for 7 parts of operators, on 2 cores each"),
    ):
        section = msgspec.structs.replace(SECTION, measured=measured, times=times)
        sentences = show.shown(section).sections[-1].body
        assert [str(one)[:2] for one in sentences] == ["A1", "A2", "A3", "A4"]
        assert told in str(sentences[0])
        assert any(told in str(one) for one in show.decision(section).sections[0].body)


def test_each_device_has_its_part_of_the_picture() -> None:
    one = operator("top", (2, 2), (0, 1, 2, 3, 4, 5, 6, 7))
    (drawn,) = tiles(plain(one), [("top", [one])])
    assert drawn.tiles[0].parts == [[(0, 1), (2, 3)], [(4, 5), (6, 7)]]
    for section in (SECTION, divided.section(consumer="jax", mesh=(2, 2))):
        groups = show.alike(section)
        (picture,) = tiles(section, groups)
        assert len(picture.tiles) == len(groups)
        for tile, (_, those) in zip(picture.tiles, groups, strict=True):
            parts = itertools.chain.from_iterable(itertools.chain.from_iterable(tile.parts))
            assert sorted(parts) == sorted(those[0].devices)


def test_a_picture_has_an_end() -> None:
    every = tuple(operator(f"o{n}", (8, 1), tuple(range(8))) for n in range(MOST // 8 + 5))
    section = plain(*every)
    (drawn,) = tiles(section, show.alike(section))
    assert len(drawn.tiles) == MOST // 8
    assert f"first {MOST // 8} of {len(every)}" in drawn.title


def test_the_command_tells_of_each_way_to_divide_the_most_frequent_first() -> None:
    once = [operator(f"o{n}", (1, 1), (n,), block="alone") for n in range(20)]
    often = [operator(f"b{n}", (2, 1), (0, 1), block="both" * (n < 2)) for n in range(3)]
    strategy = show.decision(plain(*once, *often, devices=20)).sections[0].body[-1]
    assert isinstance(strategy, Table)
    assert strategy.rows[0] == ("sample 2", "d0 to d1", "3", Key("both, b2"))
    assert len(strategy.rows) == show.ROWS
    assert "12 of 21 groups" in strategy.title
    assert isinstance(PLANNER.show(SECTION, None, []).sections[1].body[0], Tiles)


def test_it_speaks_of_no_ops_of_a_graph() -> None:
    assert not PLANNER.names_ops(SECTION)
    assert not PLANNER.changes_graphs(SECTION)
