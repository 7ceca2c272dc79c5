"""Tables of a file, in the form of pandas or as CSV, and the table of a profile's ops."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
import msgspec.inspect as ms

from dltune import extensions
from dltune.analysis.op_causes import why
from dltune.analysis.roofline import Position, Rates, analyse
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.gate.verdicts import SCHEMA, Entry
from dltune.plan import plan
from dltune.report.table import Column, Row, Table, ending, leaves, named, tables
from dltune.schemas.plan import Plan
from dltune.schemas.profile import Op, OpTime, Profile

if TYPE_CHECKING:
    import pandas


# The ops of a profile

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
    """Return the ops of a profile with what follows from their times: a row for each case, in the
    order of the time on one thread. An op without times has one row."""
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


# pandas and CSV

# what pandas would guess from the cells, and guess otherwise for a column that has none
_TYPES = {"int": "int64", "float": "float64", "bool": "bool", "tuple": "object"}
_OPTIONAL = {"int": "Int64", "bool": "boolean"}


def frame(table: Table) -> pandas.DataFrame:
    """Return a table in the form of pandas; nothing else needs pandas. A missing whole number or
    truth value is `pandas.NA`, any other missing one NaN or None. Several values in a cell are a
    tuple. Raises UsageError where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise UsageError(
            "pandas is not installed",
            remedy="install it (pip install 'dltune[pandas]'), or use dltune show --csv",
        ) from None
    cells = list(zip(*table.rows(), strict=True)) or [()] * len(table.columns)
    return pandas.DataFrame(
        {
            column.name: pandas.Series(list(values), dtype=_type(column))
            for column, values in zip(table.columns, cells, strict=True)
        }
    )


def _type(column: Column) -> Any:
    kind = _TYPES.get(column.kind)
    return _OPTIONAL.get(column.kind, kind) if column.optional else kind


def write(table: Table, file: TextIO) -> None:
    """Write a table as CSV (RFC 4180, but lines end with a line feed alone): a head of the columns'
    names, and the rows. None is an empty cell, several values in a cell are a JSON array, and
    numbers are written so that none of their digits is lost."""
    writer = csv.writer(_Lines(file))
    writer.writerow(column.name for column in table.columns)
    writer.writerows(map(_cell, row) for row in table.rows())


@dataclass(frozen=True)
class _Lines:
    """The writer quotes a carriage return in a cell only if its own lines end with one."""

    file: TextIO

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


def _cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, tuple) else value


# From a file to one of its tables
@dataclass(frozen=True)
class History:
    gates: tuple[Entry, ...]


def table(path: Path, name: str | None = None) -> Table:
    """The table of the document in the file that is called so; without a name its main one.

    Raises UsageError for a file that is no document or has faults, and for a name that it has no
    table of.
    """
    schema = SCHEMA if _is_history(path) else documents.schema(path)
    kind = extensions.find("documents", schema.rpartition("/")[0])
    if kind is None:
        raise UsageError(
            f"{path} is a {schema!r} document, which has no tables",
            remedy=f"name a file of: {', '.join(extensions.names('documents'))}; or install the "
            "system or package that reads this kind",
        )
    document = extensions.load(kind.load)(path)
    found = tables(History(tuple(document)) if isinstance(document, list) else document)
    if isinstance(document, Profile):
        found["ops"] = ops(document)
    if name is not None:
        return named(found, name)
    tables_of_plan = plan.main_tables(document) if isinstance(document, Plan) else ()
    main = [one for name in (*tables_of_plan, *kind.main) for one in ending(found, name)]
    return next((one for one in main if next(one.rows(), None)), main[0])


def _is_history(path: Path) -> bool:
    """A history is no JSON as a whole, but a line of it for each gate."""
    try:
        with open(path, "rb") as file:
            return file.read(64).startswith(b'{"schema":"%b"' % SCHEMA.encode())
    except OSError:
        return False
