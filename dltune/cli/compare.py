"""`dltune compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.formatting import Cell, Key, Table, columns, visible
from dltune.cli.options import PATH, example, top_option
from dltune.cli.results import tell
from dltune.views import Piece, Section, View

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dltune.compare import benches, profiles
    from dltune.compare.change import Change, Difference

NONE = "-"
ONE_SIDED = 10  # ops of one side only that are shown
BEYOND = 1000  # the digits of an interval that goes so far have no meaning


@click.command("compare", epilog=example("dltune compare before.json after.json"))
@click.argument("a", type=PATH)
@click.argument("b", type=PATH)
@top_option("Show at most N ops.", default=15)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(a: Path, b: Path, top: int, as_json: bool) -> None:
    """Compare two profiles, or two bench results.

    dltune lists what became slower or faster from A to B. Differences between the machines and
    versions come first, then the largest changes. dltune reports slower or faster only if the
    change exceeds the noise. The exit code is 0 whatever changed; use `dltune gate` to check
    limits.
    """
    from dltune.compare.change import compared

    tell(compared(a, b), lambda found, _: _view(found, top), as_json=as_json, written=())


def _view(found: profiles.Comparison | benches.Comparison, top: int) -> View:
    from dltune.compare import benches

    body = [_circumstances(found.circumstances)]
    body += _benches(found) if isinstance(found, benches.Comparison) else _profiles(found, top)
    return View([Section("comparison", "", body)])


def _circumstances(found: Sequence[Difference]) -> Piece:
    if not found:
        return "A and B have the same machine, versions, settings and command"
    rows = [(d.what, d.a, d.b) for d in found]
    return Table("differences between A and B", columns("", "A", "B"), rows, gap=False)


def _profiles(found: profiles.Comparison, top: int) -> Iterator[Piece]:
    if not found.same_graph:
        yield from ("", "A and B have different step graphs; ops are matched by their keys")
    steps = [(step.name, *_compared(step)) for step in found.steps]
    heads = (">A ms", ">B ms", ">B/A", ">95 % interval", "verdict", ">spreads")
    if steps:
        title = "steps: wall time with the job's own settings"
        yield Table(title, columns("step", *heads), steps)
    rows: list[tuple[Cell, ...]] = [
        (
            Key(op.key),
            f"{op.count_a}" if op.count_a == op.count_b else f"{op.count_a} to {op.count_b}",
            f"{op.threads} {op.placement}",
            f"{op.effect * 1e3:+.3f}",
            *_compared(op),
        )
        for op in found.ops[:top]
    ]
    if rows:
        a, b = found.total
        title = (
            f"ops, largest change first ({len(found.ops)} in both; sum of all: "
            f"A {a * 1e3:.1f} ms, B {b * 1e3:.1f} ms)"
        )
        yield Table(title, columns("op", ">runs", "threads", ">ms per round", *heads), rows)
        verdicts = [op.verdict for op in found.ops]
        yield ""
        yield (
            f"{verdicts.count('slower')} slower, {verdicts.count('faster')} faster, "
            f"{verdicts.count('noise')} within noise, "
            f"{verdicts.count('too few samples')} with too few samples"
        )
    else:
        yield "no op was measured with the same thread count in both"
    for name, ops in (("only in B", found.appeared), ("only in A", found.went)):
        if ops:
            alone = [(Key(op.key), str(op.count), f"{op.seconds * 1e3:.3f}") for op in ops]
            one_sided = columns("op", ">runs", ">ms per round on one thread")
            yield Table(f"ops {name}", one_sided, alone, most=ONE_SIDED)
    yield ""
    yield (
        "A and B were measured at different times, so each ratio includes any change of the "
        "machine. `dltune bench` measures in turns and excludes such changes."
    )


def _benches(found: benches.Comparison) -> Iterator[Piece]:
    rows: list[tuple[Cell, ...]] = [
        (
            s.name,
            s.pools_a if s.pools_a == s.pools_b else f"{s.pools_a} to {s.pools_b}",
            *_compared(s),
            *((*_change(s.relative)[2:], s.relative.verdict) if s.relative else (NONE,) * 3),
        )
        for s in found.settings
    ]
    if rows:
        heads = (">A ms", ">B ms", ">B/A", ">95 % interval", "verdict", ">spreads")
        over = (">ratio B/A", ">95 % interval", "verdict")
        yield Table("step times", columns("setting", "pools", *heads, *over), rows)
        yield (
            f"ratio: step time divided by that of {found.reference} in the same round; changes of "
            "the machine between A and B cancel out"
            if found.reference
            else "A and B have different references, so their ratios cannot be compared"
        )
    else:
        yield "no setting was measured in both"
    for name, settings in (("only in B", found.appeared), ("only in A", found.went)):
        if settings:
            yield f"{name}: {', '.join(map(visible, settings))}"


def _change(change: Change) -> tuple[str, str, str, str]:
    interval = NONE
    if change.low is not None and change.high is not None:
        high = f"{change.high:.3f}" if change.high < BEYOND else f"over {BEYOND}"
        interval = f"{change.low:.3f} to {high}"
    return f"{change.a * 1e3:.3f}", f"{change.b * 1e3:.3f}", f"{change.ratio:.3f}", interval


def _compared(
    one: profiles.StepChange | profiles.OpChange | benches.SettingChange,
) -> tuple[str, ...]:
    return *_change(one.change), one.verdict, f"{one.spread_a:.0%}, {one.spread_b:.0%}"
