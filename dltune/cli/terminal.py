"""The terminal: tables on stdout, progress on stderr, and the signals that ask dltune to end.

Tables of results are drawn by rich on a terminal, and are plain aligned lines elsewhere. Progress
is a live line or view on a terminal, and a line per change elsewhere. The signals go to a handler
for the time of a block, and a polite kill acts as an interrupt.
"""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Literal

import click

from dltune.base.formatting import Bar, Cell, Course, Figure, Key, Prose, Table, visible
from dltune.views import Findings, Only, Piece, Unobserved, View

if TYPE_CHECKING:
    from rich import table as rich
    from rich.status import Status

    from dltune.profile.session_state import Progress
    from dltune.schemas.diagnosis import Finding


# Tables of results on stdout

# columns of a table that is not on a terminal, and the least for an op's key
WIDTH, KEY = 120, 24
# of a series over time, and from nothing to the most
COLUMNS, BLOCKS = 80, " ▁▂▃▄▅▆▇█"
# characters at most: of a sentence in a cell, and of what any cell or title says
PROSE, LONGEST = 60, 4000


def show(table: Table, most: int | None = None, *, gap: bool = True) -> None:
    """Print a table, `most` rows of it at most, without the columns that are for a page. `gap`: an
    empty line before it."""
    kept = [
        index
        for index, column in enumerate(table.columns)
        if not column.page and not any(_only_drawn(row[index]) for row in table.rows)
    ]
    shown = [table.columns[index] for index in kept]
    rows = [[row[index] for index in kept] for row in table.rows[:most]]
    title = "\n".join(visible(line, LONGEST) for line in table.title.split("\n"))
    if len(rows) < len(table.rows):
        title += f", {len(rows)} of {len(table.rows)}"
    if gap:
        click.echo("")
    texts = _texts([column.head for column in shown], rows)
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(drawn(Table(title, shown, texts[1:])))
        return
    widths = [max(map(len, cells)) for cells in zip(*texts, strict=True)]
    if title:
        click.echo(title)
    for line in texts:
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, shown, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def show_view(view: View) -> None:
    """Print the pieces of all sections that are for a terminal."""
    show_body((piece for section in view.sections for piece in section.body), gap=True)


def show_body(body: Iterable[Piece], most: int | None = None, *, gap: bool = False) -> None:
    """Print pieces, at most `most` rows of each table. `gap`: print an empty line before a table
    even if it is the first piece."""
    for piece in body:
        if isinstance(piece, Only):
            if piece.medium == "page":
                continue
            piece = piece.piece
        if isinstance(piece, Table):
            show(piece, most or piece.most, gap=gap and piece.gap and bool(piece.title))
        elif isinstance(piece, Course):
            _plot(piece)
        elif isinstance(piece, Findings):
            show_findings(piece)
        elif isinstance(piece, Unobserved):
            show_unobserved(piece.sentences)
        elif isinstance(piece, Key):
            click.echo(f"  {cut(visible(piece.text, LONGEST), across() - 2)}")
        elif isinstance(piece, str):
            click.echo(visible(piece, LONGEST))
        gap = True


def show_findings(piece: Findings) -> None:
    """Print findings under a heading; ranked findings with their numbers instead."""
    if piece.ranked:
        for number, finding in enumerate(piece.findings, 1):
            click.echo()
            _show_finding(finding, f"{number}. ", "   ")
            if finding.apply:
                click.echo(f"   --plan applies: {', '.join(map(str, finding.apply))}")
        return
    click.echo("\nfindings")
    for finding in piece.findings:
        _show_finding(finding, "  ", "      ")
    if not piece.findings:
        click.echo("  none")


def _show_finding(finding: Finding, first: str, indent: str) -> None:
    """Print the title after `first`, then evidence, cost, fix and expected gain after `indent`."""
    from dltune.findings.diagnosis import capitalize, format_cost, format_gain, to_sentence

    _show(first, indent, capitalize(finding.title))
    for label, text in (
        ("", to_sentence(finding.evidence) if finding.evidence else ""),
        ("Cost: ", format_cost(finding)),
        ("Fix: ", finding.fix),
        ("Expected: ", format_gain(finding)),
    ):
        if text:
            _show(indent, indent, f"{label}{text}")


def show_unobserved(sentences: Sequence[str]) -> None:
    if sentences:
        click.echo("\nnot observed")
    for sentence in sentences:
        _show("  ", "    ", sentence)


def _show(first: str, indent: str, text: str) -> None:
    """Print `text` after `first`; on a terminal, the lines that follow are indented."""
    text = first + visible(text, LONGEST)
    if sys.stdout.isatty():
        text = textwrap.fill(
            text,
            shutil.get_terminal_size().columns,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    click.echo(text)


def _plot(course: Course) -> None:
    """A line of blocks for each series, the highest that is seen in each."""
    end = max(series.seconds for series in course.series)
    most = max(max(series.values) for series in course.series)
    name = max(len(series.name) for series in course.series)
    click.echo(f"\n{course.title}: up to {most:.1f} {course.unit}, over {end * 1e3:.1f} ms")
    for series in course.series:
        count = max(1, round(COLUMNS * series.seconds / end))
        cells = (
            max(series.values[at * len(series.values) // count :][:step] or (0.0,))
            for at in range(count)
            for step in [-(-len(series.values) // count)]
        )
        blocks = "".join(BLOCKS[round(cell / most * (len(BLOCKS) - 1))] for cell in cells)
        click.echo(f"{series.name:{name}}  {blocks}")


def drawn(table: Table) -> rich.Table:
    """All of a table, for a terminal, in whatever width there is for it."""
    from rich import table as rich
    from rich.text import Text

    made = rich.Table(title=Text(table.title, "table.title"), title_justify="left")
    for column in table.columns:
        align: Literal["left", "right"] = "right" if column.right else "left"
        made.add_column(column.head, justify=align, overflow="ellipsis")
    for row in table.rows:
        made.add_row(*(Text(_text(cell)) for cell in row))
    return made


def _only_drawn(cell: Cell) -> bool:
    return isinstance(cell, Bar) or hasattr(cell, "__html__")


def _texts(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """The lines of a table, its heads first; keys take the rest of the width."""
    keys = [any(isinstance(row[i], Key) for row in rows) for i in range(len(heads))]
    lines = [list(heads), *([_text(cell) for cell in row] for row in rows)]
    if any(keys):
        between = 3 if sys.stdout.isatty() else 2
        rest = [i for i, key in enumerate(keys) if not key]
        taken = sum(max(len(line[i]) for line in lines) for i in rest) + between * len(keys)
        width = max(KEY, (across() - taken) // keys.count(True))
        for line, row in zip(lines[1:], rows, strict=True):
            for i, cell in enumerate(row):
                if isinstance(cell, Key):
                    line[i] = cut(line[i], width, end=cell.end)
    return lines


def _text(cell: Cell) -> str:
    if isinstance(cell, Prose):
        return cut(visible(cell.text, LONGEST), PROSE)
    if isinstance(cell, (Key, Figure)):
        cell = cell.text
    return visible(cell, LONGEST) if isinstance(cell, str) else ""


def across() -> int:
    """Width of the terminal; elsewhere, a common width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


def cut(text: str, width: int, *, end: bool = False) -> str:
    """`text` in at most `width` characters. `end`: keep this, not the beginning."""
    if len(text) <= width:
        return text
    return "…" + text[1 - width :] if end else text[: width - 1] + "…"


# Progress on stderr

log = logging.getLogger(__name__)

# without a terminal, changes within a phase are shown after so many seconds
QUIET_SECONDS = 15.0


class Line:
    def __init__(self, status: Status | None) -> None:
        self._status = status
        self._told: set[str] = set()
        self._same: tuple[object, ...] = ()
        self._when = -math.inf

    def tell(self, progress: Progress) -> None:
        """Show where a profiling session is."""
        text = progress.phase
        if progress.step:
            text += f", step {progress.step}"
        if progress.case:
            threads, placement = progress.case
            text += f", {threads} thread{'s' * (threads > 1)} ({placement} placement)"
            if progress.climbing:
                text += f", {progress.climbing} ops left"
        if progress.left is not None:
            text += f", about {progress.left:.0f} s left"
        self.show(text, (progress.phase, progress.case))

    def show(self, text: str, same: tuple[object, ...]) -> None:
        """Show `text`; elsewhere than on a terminal only when `same` has changed or time passed,
        and never the same line again: it would add nothing."""
        if self._status is not None:
            if same != self._same:
                self._same = same
                log.debug("%s", text)
            self._status.update(text)
            return
        now = time.monotonic()
        if text not in self._told and (same != self._same or now - self._when >= QUIET_SECONDS):
            self._told.add(text)
            self._same, self._when = same, now
            self.say(text)

    def say(self, text: str) -> None:
        """A line that stays."""
        log.debug("%s", text)
        if self._status is not None:
            self._status.console.print(f"dltune: {text}", markup=False, highlight=False)
        else:
            print(f"dltune: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def line() -> Iterator[Line]:
    """The progress line for the time of a block."""
    if not sys.stderr.isatty():
        yield Line(None)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting the job") as status:
        yield Line(status)


@contextlib.contextmanager
def live(
    subject: str, summary: Callable[[], str], tables: Callable[[], Sequence[Table]]
) -> Iterator[Callable[[], None]]:
    """A live view on stderr: shows `summary`, and on a terminal `tables` below it, whenever the
    function is called; elsewhere a line now and then."""
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
        yield lambda: shown.update(
            Group(Text(summary()), *(drawn(table) for table in tables())), refresh=True
        )


# Signals that ask dltune to end

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# signals of a scheduler to a job before its time is over
TOLD = (signal.SIGUSR1, signal.SIGUSR2)


class Ended(KeyboardInterrupt):
    """dltune was asked to end by the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """Exit code that a shell reports for a process ended by the signal."""
        return 128 + self.number


@contextlib.contextmanager
def heard(
    handler: Callable[[int, FrameType | None], object], numbers: Iterable[int] = ENDING
) -> Iterator[None]:
    """Within the block `handler` gets SIGINT, SIGTERM, SIGHUP and SIGQUIT, or these `numbers`.

    Signals that dltune was started to ignore are excluded, as nohup does with SIGHUP and a shell
    with SIGINT for its background processes: they stay ignored, by dltune and by the job.
    """
    before = {}
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            if earlier is not None:  # else a library's, which Python cannot put back
                signal.signal(number, earlier)


def raised() -> contextlib.AbstractContextManager[None]:
    """Within the block these signals raise `Ended`, unless they are ignored."""
    return heard(_raise)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Act as `raised`; report a signal that comes out of the block, and exit as for it."""
    try:
        with raised():
            yield
    except Ended as ended:
        click.echo(f"dltune: ended by {ended}", err=True)
        raise SystemExit(ended.exit_code) from None


def _raise(number: int, _: FrameType | None) -> None:
    raise Ended(number)
