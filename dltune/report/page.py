"""The page: one file that needs nothing else, and is not permitted to load or run anything else.

Style and script are inline, and the page's own security policy names them by their hashes: were
markup ever to slip in from a name, it could neither run nor fetch.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from dltune import __version__, extensions
from dltune.base.errors import UsageError
from dltune.base.formatting import Course, Ratios, Shares, Table, Tiles
from dltune.findings.finding_text import format_cost, format_gain, to_sentence
from dltune.report.charts.course import course
from dltune.report.charts.forest import forest
from dltune.report.charts.marks import captioned, divided
from dltune.report.charts.tiles import tiles
from dltune.report.markup import Markup, joined, rendered, tag
from dltune.report.sections.schedules import schedule
from dltune.report.table import html
from dltune.schemas.diagnosis import Finding
from dltune.views import (
    Context,
    Findings,
    Headline,
    Only,
    Picture,
    Piece,
    Schedule,
    Section,
    View,
)

SENTENCES = 3


@dataclass(frozen=True)
class _Drawn:
    """A section as markup. `identifier`: unique on the page, a link's target."""

    identifier: str
    title: str
    body: Markup


@dataclass(frozen=True)
class _Article:
    title: str
    view: View
    remarks: Sequence[str]
    sections: Sequence[_Drawn]


def page(context: Context) -> bytes:
    """The whole report, UTF-8. Raises UsageError when no document has anything to show."""
    articles = _articles(context)
    if not any(article.sections for article in articles):
        remarks = [remark for article in articles for remark in article.remarks]
        raise UsageError(
            f"there is nothing to show: {' '.join(remarks)}",
            remedy="name documents that hold results",
        )
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return rendered(
        "page.html",
        policy=policy,
        version=__version__,
        title="dltune: " + ", ".join(article.title for article in articles),
        style=Markup(style),
        script=Markup(script),
        articles=articles,
        found=sentences([headline for article in articles for headline in article.view.headlines]),
    ).encode()


def sentences(headlines: Sequence[Headline]) -> list[str]:
    """Return the result in three sentences: the verdict, the decision, the time, the reason."""
    ordered = sorted(headlines, key=lambda one: one.rank)
    return [one.sentence for one in ordered[:SENTENCES]]


def _articles(context: Context) -> list[_Article]:
    """Return what the page has of each document; folders distinguish files of the same name."""
    views: list[View] = [
        extensions.load(extensions.find("documents", loaded.kind).view)(loaded.document, context)
        for loaded in context.documents
    ]
    made = list(zip(context.documents, views, strict=True))
    titles = [f"{view.title} {loaded.path.name}" for loaded, view in made]
    return [
        _Article(
            f"{title} in {loaded.path.parent}" if titles.count(title) > 1 else title,
            view,
            list(view.remarks),
            list(filter(None, (_section(section, loaded.prefix) for section in view.sections))),
        )
        for title, (loaded, view) in zip(titles, made, strict=True)
    ]


def _section(section: Section, prefix: str) -> _Drawn | None:
    """Return a section as markup, None if it has nothing for a page."""
    identifier = f"{prefix}-{section.name}"
    pieces = [
        piece
        for piece in section.body
        if not (isinstance(piece, Only) and piece.medium == "terminal")
    ]
    drawn = [_piece(piece, prefix, identifier, number) for number, piece in enumerate(pieces)]
    return _Drawn(identifier, section.title, joined(drawn)) if drawn else None


def _piece(piece: Piece, prefix: str, identifier: str, number: int) -> object:
    match piece:
        case Table():
            name = f"{prefix}-{piece.name}" if piece.name else f"{identifier}-table{number}"
            return html(piece, name)
        case Findings():
            return findings(piece.findings)
        case Picture():
            return piece.draw(prefix)
        case Schedule():
            return schedule(piece, f"{identifier}-drawn")
        case Ratios():
            return forest(piece)
        case Course():
            return course(piece)
        case Tiles():
            return tiles(piece)
        case Shares():
            return captioned(piece.title, divided(piece.parts))
        case Only():
            return _piece(piece.piece, prefix, identifier, number)
    return tag("p", piece)


def findings(found: Sequence[Finding]) -> Markup:
    """Return each finding's title, evidence, cost, fix and expected gain."""
    if not found:
        return tag("p", "No problem was found.")
    return tag("ol", *map(_finding, found))


def _finding(finding: Finding) -> Markup:
    evidence = f" {to_sentence(finding.evidence)}" if finding.evidence else ""
    lines = [
        f"cost: {costs}" if (costs := format_cost(finding)) else "",
        f"fix: {finding.fix}" if finding.fix else "",
        f"expected: {brings}" if (brings := format_gain(finding)) else "",
    ]
    return tag(
        "li",
        tag("p", tag("b", to_sentence(finding.title)), evidence),
        *(tag("p", to_sentence(line)) for line in lines if line),
    )


def _asset(name: str) -> str:
    return (resources.files("dltune.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
