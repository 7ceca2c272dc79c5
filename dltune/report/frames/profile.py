"""The ops of a profile with what follows from their times: a row for each case, in the order of the
time on one thread. An op without times has one row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec.inspect as ms

from dltune.analysis.op_causes import why
from dltune.analysis.roofline import Position, Rates, analyse
from dltune.report.frames.columns import leaves
from dltune.report.frames.table import Row, Table
from dltune.schemas.profile import Op, OpTime, Profile

# structs whose fields are told apart without their names
_OWN = ("op", "time", "rates")


@dataclass(frozen=True)
class _Case:
    """`ops` and `times`: positions in the profile. `operations` (floating-point) and `moved`
    (bytes): of one run. `serial`: seconds in a round of the steps on one thread, `share`: of all
    ops'. `best`: no case of the op is faster. `roof`: its place under the roofline. `cause` and
    `why`: why the op takes its time at its best case."""

    ops: int
    op: Op
    operations: int | None
    moved: int | None
    serial: float
    share: float
    cause: str
    why: str
    times: int | None = None
    time: OpTime | None = None
    best: bool | None = None
    rates: Rates | None = None
    roof: Position | None = None


def ops(profile: Profile) -> Table:
    found = [leaf for leaf in leaves(ms.type_info(_Case)) if leaf.column]
    columns = tuple(
        dataclasses.replace(leaf.column, name=".".join(_named(leaf.path)))
        for leaf in found
        if leaf.column
    )

    def rows() -> Iterator[Row]:
        return (tuple(leaf.cell(case) for leaf in found) for case in _cases(profile))

    return Table("ops", columns, rows)


def _named(path: tuple[str, ...]) -> tuple[str, ...]:
    return path[1:] if path[0] in _OWN else path


def _cases(profile: Profile) -> Iterator[_Case]:
    analysis = analyse(profile)
    position = {op.key: index for index, op in enumerate(profile.ops)}
    for figures in analysis.ops:
        op = _Case(
            position[figures.op.key],
            figures.op,
            figures.operations,
            figures.moved,
            figures.serial,
            figures.share,
            *why(figures, analysis),
        )
        if not figures.cases:
            yield op
        for index, case in enumerate(figures.cases):
            yield dataclasses.replace(
                op,
                times=index,
                time=case.time,
                best=case is figures.best,
                rates=case.rates,
                roof=analysis.roofline.position(case),
            )
