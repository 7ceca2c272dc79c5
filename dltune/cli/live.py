"""A live view on stderr: tables on a terminal, a line now and then else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dltune.cli.progress import Line

if TYPE_CHECKING:
    from rich.table import Table


@contextlib.contextmanager
def live(
    subject: str, summary: Callable[[], str], tables: Callable[[], Sequence[Table]]
) -> Iterator[Callable[[], None]]:
    """Shows `summary`, and on a terminal `tables` below it, whenever the function is called."""
    if not sys.stderr.isatty():
        line = Line(None)
        line.show(subject, ())
        yield lambda: line.show(summary(), ())
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    with Live(
        Text(subject), console=Console(stderr=True), auto_refresh=False, transient=True
    ) as shown:
        yield lambda: shown.update(Group(Text(summary()), *tables()), refresh=True)
