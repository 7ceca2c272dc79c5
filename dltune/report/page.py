"""The report: it loads documents, finds those that belong together, and makes one page.

The page is one file that needs nothing else, and is not permitted to load or run anything else.
Style and script are inline, and the page's own security policy names them by their hashes: were
markup ever to slip in from a name, it could neither run nor fetch.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dltune import __version__, extensions
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import Course, Ratios, Shares, Table, Tiles
from dltune.extensions import DocumentKind
from dltune.findings.diagnosis import format_cost, format_gain, to_sentence
from dltune.plan.plan import with_sections
from dltune.report.markup import Markup, captioned, divided, html, joined, rendered, tag
from dltune.report.plot import course, forest, tiles
from dltune.report.sections.timelines import schedule
from dltune.schemas.bench import Bench
from dltune.schemas.diagnosis import Finding
from dltune.schemas.plan import Plan
from dltune.schemas.profile import Profile
from dltune.views import (
    Context,
    Findings,
    Headline,
    Loaded,
    Only,
    Picture,
    Piece,
    Schedule,
    Section,
    View,
)


# The documents of a page, from their files
def known() -> list[str]:
    """Return the kinds that have a view, such as "dltune.profile"."""
    return sorted(name for name in extensions.names("documents") if _kind(name).view)


def read(paths: Sequence[Path]) -> Context:
    """Return all documents, each loaded and checked by its kind.

    Raises UsageError for a file that is none of the known kinds, has faults, or is named twice.
    """
    seen: set[Path] = set()
    loaded = []
    for index, path in enumerate(paths):
        if path.resolve() in seen:
            raise UsageError(f"{path} is named twice", remedy="name each file once")
        seen.add(path.resolve())
        name, _, _ = documents.schema(path).rpartition("/")
        if name not in known():
            remedy = f"name files of: {', '.join(known())}"
            if name not in extensions.names("documents"):
                remedy += "; or install the system or package that reads this kind"
            raise UsageError(
                f"{path} is a {name!r} document, which a report cannot show", remedy=remedy
            )
        document = extensions.load(_kind(name).load)(path)
        loaded.append(Loaded(path, name, document, f"d{index}"))
    return Context(loaded)


def _kind(name: str) -> DocumentKind:
    kind = extensions.find("documents", name)
    assert isinstance(kind, DocumentKind)
    return kind


# Documents of the page that belong together
def plan_of(profile: Profile, context: Context) -> Plan | None:
    """The plan that was made from the profile; else one for the same graphs."""
    plans = context.of(Plan)
    digest = documents.digest(profile) if plans else ""
    graphs = {step.signature for step in profile.steps}
    made = (plan for plan in plans if plan.profile == digest)
    fitting = (plan for plan in plans if set(plan.signatures) == graphs)
    return next(made, None) or next(fitting, None)


def profiles_of(plan: Plan, context: Context) -> list[Profile]:
    """Profiles whose plan this is."""
    return [found for found in context.of(Profile) if plan_of(found, context) is plan]


def bench_of(plan: Plan, context: Context) -> Bench | None:
    """Return the comparison that measured the plan, else the plan before settings were added."""
    benches = context.of(Bench)
    digests = _digests(plan) if benches else ()
    return next((bench for d in digests for bench in benches if bench.plan == d), None)


def plan_behind(bench: Bench, context: Context) -> Plan | None:
    """The plan that the comparison measured, maybe before settings were put into it."""
    return next((plan for plan in context.of(Plan) if bench.plan in _digests(plan)), None)


def _digests(plan: Plan) -> tuple[str, ...]:
    """Return the digests of the plan, and of its state before `dltune tune --into`."""
    return documents.digest(plan), documents.digest(with_sections(plan, settings=None))


# The page

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
