"""A live view on stderr: tables on a terminal, a line now and then else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

QUIET_SECONDS = 15.0


@contextlib.contextmanager
def live(
    subject: str, summary: Callable[[], str], tables: Callable[[], Sequence[Table]]
) -> Iterator[Callable[[], None]]:
    """Shows `summary`, and on a terminal `tables` below it, whenever the function is called."""
    if not sys.stderr.isatty():
        told = time.monotonic()

        def line() -> None:
            nonlocal told
            if time.monotonic() - told >= QUIET_SECONDS:
                told = time.monotonic()
                print(f"dltune: {summary()}", file=sys.stderr, flush=True)

        print(f"dltune: {subject}", file=sys.stderr, flush=True)
        yield line
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    with Live(
        Text(subject), console=Console(stderr=True), auto_refresh=False, transient=True
    ) as shown:
        yield lambda: shown.update(Group(Text(summary()), *tables()), refresh=True)
