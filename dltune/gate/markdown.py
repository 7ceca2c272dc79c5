"""A result as Markdown, for a comment on a pull request."""

from __future__ import annotations

import shlex

from dltune.documents.gate import Result
from dltune.gate import figures
from dltune.visible import visible

HEADS = {
    "pass": "✅ performance limits hold",
    "fail": "❌ a performance limit does not hold",
    "undecided": "❔ performance limits are undecided",
}
SIGNS = {"pass": "✅ pass", "fail": "❌ fail", "undecided": "❔ undecided"}
COLUMNS = ("", "metric", *figures.COLUMNS)


def render(result: Result) -> str:
    """Markdown as GitHub and GitLab read it. Foreign text stands in <code>, escaped."""
    lines = [
        f"### {HEADS[result.outcome]}",
        "",
        f"{code(result.head.name)} against {code(result.base.name)}: "
        f"{code(shlex.join(result.command), 300)}",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "|".join("---" if i < 2 else "--:" for i in range(len(COLUMNS))) + "|",
    ]
    for verdict in result.verdicts:
        cells = (
            SIGNS[verdict.outcome],
            code(verdict.metric),
            *figures.cells(verdict),
        )
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    open_ = [v for v in result.verdicts if v.outcome == "undecided"]
    lines += [f"- {code(v.metric)}: {code(v.why, 400)}" for v in open_]
    lines += [f"- {code(note, 400)}" for note in result.notes]
    cores = len(result.machine.cores)
    lines += [
        "",
        f"<sub>{result.confidence:.0%} intervals that hold at every look; {result.seconds:.0f} s "
        f"on {cores} core{'s' * (cores != 1)} of {code(result.machine.name, 80)}; "
        f"dltune {code(result.dltune)}</sub>",
    ]
    return "\n".join(lines) + "\n"


def code(text: str, longest: int = 120) -> str:
    """`text` where Markdown, HTML, mentions and links do nothing: in <code>, with everything but
    letters, digits and spaces written as a character reference."""
    shown = visible(text, longest)
    return (
        "<code>" + "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in shown)
        + "</code>"
    )  # fmt: skip
