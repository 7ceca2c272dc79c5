"""A result where reviewers look: workflow commands of GitHub Actions, GitLab's code quality, JUnit
XML, Markdown."""

from __future__ import annotations

import hashlib
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dltune.base.formatting import Cell, Column, Key, columns, visible
from dltune.gate import figures
from dltune.schemas.gate import Outcome, Result, Verdict

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
        f"{_data(visible(figures.sentence(v), LONGEST))}\n"
        for v in result.verdicts
    )


def gitlab(result: Result, path: str) -> bytes:
    """A code quality report (JSON) of the limits that do not hold or are undecided; `path` is the
    file that they are shown at."""
    return msgspec.json.format(
        msgspec.json.encode(
            [
                {
                    "description": visible(figures.sentence(v), LONGEST),
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
                "name": f"{visible(figures.limited(verdict))} at most {figures.limit(verdict)}",
                "time": "0",
            },
        )
        text = visible(figures.sentence(verdict), LONGEST)
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
            columns("", "metric", *(f">{head}" for head in figures.COLUMNS)),
            [
                (SIGNS[v.outcome], Key(figures.limited(v)), *figures.cells(v))
                for v in result.verdicts
            ],
        ),
        "",
    ]
    open_ = [v for v in result.verdicts if v.outcome == "undecided"]
    lines += [f"- {code(v.metric)}: {code(figures.undecided(v), 400)}" for v in open_]
    drifts = [v for v in result.verdicts if v.over == "drift"]
    lines += [f"- {code(figures.sentence(v), 400)}" for v in drifts]
    lines += [f"- {code(note, 400)}" for note in result.notes]
    if slower := figures.where(result):
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
