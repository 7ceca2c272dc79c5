"""Output of a gate for reviewers: figures, tables, reports for CI services, and a history chart.

Every output presents the figures of a verdict in the same way. A result is written as workflow
commands of GitHub Actions, GitLab's code quality report, JUnit XML and Markdown; the history is
drawn as SVG.
"""

from __future__ import annotations

import hashlib
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from markupsafe import Markup

from dltune.base.formatting import Cell, Column, Key, Prose, Table, columns, visible
from dltune.gate.verdicts import Entry, Point, excluded
from dltune.schemas.gate import Outcome, Result, Unit, Verdict

# A verdict's figures as a person reads them: the same in every output

NONE = "-"
COLUMNS = ("base", "head", "measured", "interval", "limit", "rounds")
_STEPS = {"s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
          "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))}  # fmt: skip


def quantity(value: float | None, unit: Unit) -> str:
    """A value in the unit that suits its size."""
    if value is None:
        return NONE
    for size, name in _STEPS.get(unit, ()):
        if value >= size:
            return f"{value / size:.4g} {name}"
    return f"{value:.4g}{' s' if unit == 's' else ' B' if unit == 'bytes' else ''}"


def over(verdict: Verdict | Point, value: float | None) -> str:
    """A figure of the verdict's own scale: a ratio, or a value with its unit."""
    if value is None:
        return NONE
    return quantity(value, verdict.unit) if verdict.over == "value" else f"{value:.3f}"


def interval(verdict: Verdict) -> str:
    if verdict.low is None and verdict.high is None:
        return NONE
    return f"{over(verdict, verdict.low)} to {over(verdict, verdict.high)}"


def limit(verdict: Verdict) -> str:
    return f"{'' if verdict.over == 'value' else 'x '}{over(verdict, verdict.limit)}"


def limited(verdict: Verdict) -> str:
    """Name of the limited quantity."""
    return f"drift of {verdict.metric}" if verdict.over == "drift" else verdict.metric


def cells(verdict: Verdict) -> tuple[str, ...]:
    """Cells under `COLUMNS`."""
    return (
        quantity(verdict.base, verdict.unit),
        quantity(verdict.head, verdict.unit),
        over(verdict, verdict.median),
        interval(verdict),
        limit(verdict),
        str(verdict.rounds),
    )


def table(result: Result) -> Table:
    """Table of the limits: the measured values, and their meaning."""
    heads = ("metric", *(f">{column}" for column in COLUMNS), "verdict", "+why")
    return Table(
        f"limits of {result.head.name} against {result.base.name} ({result.seconds:.0f} s, "
        f"{result.confidence * 100:.4g} % intervals)",
        columns(*heads),
        [(Key(limited(v)), *cells(v), v.outcome, Prose(v.why)) for v in result.verdicts],
        name="limits-table",
        gap=False,
    )


def where(result: Result) -> Table | None:
    """Table of the slower parts; None if none was searched for or found."""
    if not result.slower:
        return None
    of = "a step" if result.kind == "steps" else "the command"
    return Table(
        f"slower parts of {of} (means of extra rounds, 95 % intervals)",
        columns("kind", "name", ">base", ">head", ">slower by", ">interval", ""),
        [
            (
                {"part": "part", "op": "op", "python": "Python"}[one.kind],
                Key(one.what),
                quantity(one.base, "s"),
                quantity(one.head, "s"),
                quantity(one.head - one.base, "s"),
                f"{quantity(one.low, 's')} to {quantity(one.high, 's')}",
                "changed" if one.changed else "",
            )
            for one in result.slower
        ],
        name="slower-table",
    )


def undecided(verdict: Verdict) -> str:
    """Reason for being undecided, the excluded change, and the rounds needed to decide."""
    told = [verdict.why]
    if (most := excluded(verdict)) is not None:
        above = "the base" if verdict.over == "ratio" else "the limit"
        told.append(f"it is at most {most:.1%} above {above}")
    if verdict.needed is not None:
        more = verdict.needed - verdict.rounds
        told.append(f"about {more} more round{'s' * (more != 1)} would decide it")
    elif verdict.median is not None and verdict.high is not None:
        told.append("the number of rounds needed cannot be estimated")
    return "; ".join(told)


def sentence(verdict: Verdict) -> str:
    """Line with the measured value, the limit, and the meaning."""
    if verdict.over == "drift" or (verdict.median is None and verdict.rounds == 0):
        return f"{verdict.metric}: {verdict.why}"
    what = "ratio to the base" if verdict.over == "ratio" else "value"
    measured = f"{what} {over(verdict, verdict.median)} ({interval(verdict)})"
    return (
        f"{verdict.metric}: {measured}, limit {over(verdict, verdict.limit)}, after "
        f"{verdict.rounds} round{'s' * (verdict.rounds != 1)}: {verdict.outcome}; "
        f"{undecided(verdict) if verdict.outcome == 'undecided' else verdict.why}"
    )


# Reports for CI services and reviews

GITHUB: dict[Outcome, str] = {"fail": "error", "undecided": "warning", "pass": "notice"}
GITLAB: dict[Outcome, str] = {"fail": "major", "undecided": "info"}
LONGEST = 1000
HEADS: dict[Outcome, str] = {
    "pass": "✅ performance limits hold",
    "fail": "❌ a performance limit failed",
    "undecided": "❔ performance limits are undecided",
}
SIGNS: dict[Outcome, str] = {"pass": "✅ pass", "fail": "❌ fail", "undecided": "❔ undecided"}


def github(result: Result) -> str:
    """A line for each limit, as the runner of GitHub Actions obeys them."""
    return "".join(
        f"::{GITHUB[_severity(v)]} title={_property(f'dltune gate: {visible(v.metric)}')}::"
        f"{_data(visible(sentence(v), LONGEST))}\n"
        for v in result.verdicts
    )


def gitlab(result: Result, path: str) -> bytes:
    """A code quality report (JSON) of the limits that do not hold or are undecided; `path` is the
    file that they are shown at."""
    return msgspec.json.format(
        msgspec.json.encode(
            [
                {
                    "description": visible(sentence(v), LONGEST),
                    "check_name": f"dltune gate {v.over}",
                    "fingerprint": _fingerprint(v),
                    "severity": GITLAB[_severity(v)],
                    "location": {"path": path, "lines": {"begin": 1}},
                }
                for v in result.verdicts
                if v.outcome != "pass"
            ]
        ),
        indent=1,
    )


def junit(result: Result) -> bytes:
    """JUnit XML, which every CI shows: a test for each limit.

    UTF-8. A limit that fails is a failure; one that is undecided is skipped, or a failure where
    that is what undecided means. Text is escaped; what XML cannot hold is written out.
    """
    tags = {"pass": "system-out", "fail": "failure", "undecided": "skipped"}
    told = [tags[_severity(verdict)] for verdict in result.verdicts]
    counts = {
        "tests": str(len(result.verdicts)),
        "failures": str(told.count("failure")),
        "errors": "0",
        "skipped": str(told.count("skipped")),
        "time": f"{result.seconds:.3f}",
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "dltune gate", **counts,
                                              "timestamp": result.created})  # fmt: skip
    for verdict, tag in zip(result.verdicts, told, strict=True):
        case = ET.SubElement(
            suite,
            "testcase",
            {
                "classname": f"dltune.gate.{verdict.over}",
                "name": f"{visible(limited(verdict))} at most {limit(verdict)}",
                "time": "0",
            },
        )
        text = visible(sentence(verdict), LONGEST)
        if tag == "failure":
            ET.SubElement(case, tag, {"message": text, "type": verdict.outcome}).text = text
        elif tag == "skipped":
            ET.SubElement(case, tag, {"message": text})
        else:
            ET.SubElement(case, tag).text = text
    ET.indent(root)
    rendered: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return rendered + b"\n"


def markdown(result: Result) -> str:
    """Markdown for a comment on a pull request, as GitHub and GitLab read it. Foreign text is
    in <code>, escaped."""
    lines = [
        f"### {HEADS[result.outcome]}",
        "",
        f"{code(result.head.name)} against {code(result.base.name)}: "
        f"{code(shlex.join(result.command), 300)}",
        "",
        *_table(
            columns("", "metric", *(f">{head}" for head in COLUMNS)),
            [(SIGNS[v.outcome], Key(limited(v)), *cells(v)) for v in result.verdicts],
        ),
        "",
    ]
    open_ = [v for v in result.verdicts if v.outcome == "undecided"]
    lines += [f"- {code(v.metric)}: {code(undecided(v), 400)}" for v in open_]
    drifts = [v for v in result.verdicts if v.over == "drift"]
    lines += [f"- {code(sentence(v), 400)}" for v in drifts]
    lines += [f"- {code(note, 400)}" for note in result.notes]
    if slower := where(result):
        lines += ["", slower.title, "", *_table(slower.columns, slower.rows)]
    cores = len(result.machine.cores)
    lines += [
        "",
        f"<sub>{result.confidence * 100:.4g} % intervals, valid after every round; "
        f"{result.seconds:.0f} s on {cores} core{'s' * (cores != 1)} of "
        f"{code(result.machine.name, 80)}; dltune {code(result.dltune)}</sub>",
    ]
    return "\n".join(lines) + "\n"


def _table(heads: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    yield "| " + " | ".join(column.head for column in heads) + " |"
    yield "|" + "|".join("--:" if column.right else "---" for column in heads) + "|"
    for row in rows:
        cells = (code(cell.text) if isinstance(cell, Key) else str(cell) for cell in row)
        yield "| " + " | ".join(cells) + " |"


def code(text: str, longest: int = 120) -> str:
    """`text` where Markdown, HTML, mentions and links do nothing: in <code>, with everything but
    letters, digits and spaces written as a character reference."""
    shown = visible(text, longest)
    return (
        "<code>" + "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in shown)
        + "</code>"
    )  # fmt: skip


def _severity(verdict: Verdict) -> Outcome:
    """Return the outcome; an undecided limit fails where the configuration says so."""
    return "fail" if verdict.passed is False else verdict.outcome


def _fingerprint(verdict: Verdict) -> str:
    """Stays the same while the same limit is at fault, so that GitLab knows new from old."""
    told = f"{verdict.metric}\0{verdict.over}\0{verdict.outcome}"
    return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# The history as a picture

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 150, 90, 20, 30, 24
MOST_GATES = 120
# distinct without colour too: each outcome has its own shape
COLOURS = {"pass": "#1a7f37", "fail": "#cf222e", "undecided": "#9a6700"}
STYLE = (
    "svg{background:#fff;font:12px sans-serif;fill:#1f2328}"
    ".line{stroke:#1f2328;stroke-dasharray:4 3;fill:none}.axis{stroke:#8c959f}"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117;fill:#e6edf3}"
    ".line{stroke:#e6edf3}}"
)


def svg(entries: Sequence[Entry]) -> str:
    """SVG of the last `MOST_GATES` gates, oldest on the left: a chart for each limit, an interval
    for each gate. An empty history is a picture that
    says so."""
    shown = entries[-MOST_GATES:]
    names = list(dict.fromkeys((p.metric, p.over) for e in shown for p in e.points))
    height = max(len(names), 1) * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="performance limits over time">',
        f"<style>{STYLE}</style>",
    ]
    if not names:
        parts.append(_text(LEFT, HEIGHT / 2, "no gate yet"))
    for number, name in enumerate(names):
        parts.append(f'<g transform="translate(0 {number * HEIGHT})">')
        parts += _chart(name, shown)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _chart(name: tuple[str, str], entries: Sequence[Entry]) -> list[str]:
    found = [
        (place, entry, point)
        for place, entry in enumerate(entries)
        for point in entry.points
        if (point.metric, point.over) == name and point.median is not None
    ]
    title = f"{visible(name[0], 80)}, {'ratio to the base' if name[1] == 'ratio' else 'value'}"
    parts = [_text(LEFT, 18, title, weight="bold")]
    if not found:
        return [*parts, _text(LEFT, HEIGHT / 2, "never measured")]
    values = [v for _, _, p in found for v in (p.median, p.low, p.high, p.limit) if v is not None]
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def x(place: int) -> float:
        return LEFT + (place + 0.5) / len(entries) * (WIDTH - LEFT - RIGHT)

    last = found[-1][2]
    bottom = HEIGHT - BOTTOM
    parts += [
        f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}" fill="none"/>',
        f'<path class="line" d="M{LEFT} {y(last.limit):.1f}H{WIDTH - RIGHT}"/>',
        _text(LEFT - 6, y(last.limit) + 4, over(last, last.limit), "end"),
    ]
    for place, entry, point in found:
        parts += _mark(point, entry, x(place), y)
    first_day, last_day = found[0][1].created[:10], found[-1][1].created[:10]
    parts.append(_text(LEFT, HEIGHT - 8, first_day))
    parts.append(_text(WIDTH - RIGHT, HEIGHT - 8, last_day, "end"))
    return parts


def _mark(point: Point, entry: Entry, x: float, y: Callable[[float], float]) -> list[str]:
    colour = COLOURS[point.outcome]
    assert point.median is not None
    middle = y(point.median)
    figure = over(point, point.median)
    told = f"{visible(entry.head, 60)} {visible(entry.created, 40)}: {figure}, {point.outcome}"
    parts: list[str] = [Markup("<g><title>{}</title>").format(told)]
    if point.low is not None and point.high is not None:
        parts.append(
            f'<path d="M{x:.1f} {y(point.low):.1f}V{y(point.high):.1f}" stroke="{colour}"/>'
        )
    shape = {
        "pass": f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="3" fill="{colour}"/>',
        "fail": f'<path d="M{x - 4:.1f} {middle - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}" '
        'stroke-width="2"/>',
        "undecided": f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="3" fill="none" '
        f'stroke="{colour}"/>',
    }[point.outcome]
    return [*parts, shape, "</g>"]


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    element = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-weight="{}">{}</text>')
    return element.format(x, y, anchor, weight, visible(text))
