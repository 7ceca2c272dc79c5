"""A table as pandas has them: the one place that needs pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dltune.base.errors import UsageError
from dltune.report.frames.columns import Column
from dltune.report.frames.table import Table

if TYPE_CHECKING:
    import pandas

# what pandas would guess from the cells, and guess otherwise for a column that has none
_TYPES = {"int": "int64", "float": "float64", "bool": "bool", "tuple": "object"}
_OPTIONAL = {"int": "Int64", "bool": "boolean"}


def frame(table: Table) -> pandas.DataFrame:
    """A missing whole number or truth value is `pandas.NA`, any other missing one NaN or None.
    Several values in a cell are a tuple. Raises UsageError where pandas is not installed."""
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
