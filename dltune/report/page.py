"""The page: one file that needs nothing else, and may load and run nothing else.

Style and script are inline, and the page's own security policy names them by their hashes: were
markup ever to slip in from a name, it could neither run nor fetch.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Sequence
from importlib import resources

from dltune import __version__
from dltune.errors import UsageError
from dltune.planners.shown import Finding
from dltune.report.markup import Markup, tag
from dltune.report.reading import module
from dltune.report.section import Context, Shown

SENTENCES = 3


def page(context: Context) -> bytes:
    """The whole report, UTF-8. Raises UsageError when no document has anything to show."""
    shown = _told_apart(context)
    if not any(one.sections for one in shown):
        remarks = [remark for one in shown for remark in one.remarks]
        raise UsageError(f"there is nothing to show: {' '.join(remarks)}")
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=Markup(policy)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"dltune {__version__}"),
        tag("title", _title(shown)),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#report", class_="skip"),
        tag(
            "header",
            tag("h1", _title(shown)),
            tag("button", "Dark or light", type="button", id="theme"),
        ),
        _contents(shown),
        tag(
            "main",
            _found(shown),
            *(_document(one, f"document{n}") for n, one in enumerate(shown)),
            id="report",
            tabindex="-1",
        ),
        tag("footer", f"Made by dltune {__version__}."),
        tag("script", Markup(script)),
    )
    html = Markup("<!DOCTYPE html>\n") + tag("html", head, body, lang="en")
    return (html + "\n").encode()


def sentences(findings: Sequence[Finding]) -> list[str]:
    """What was found, in three sentences: the verdict, the decision, the time, the reason."""
    ordered = sorted(findings, key=lambda finding: finding.rank)
    return [finding.sentence for finding in ordered[:SENTENCES]]


def _title(shown: Sequence[Shown]) -> str:
    return "dltune: " + ", ".join(one.title for one in shown)


def _found(shown: Sequence[Shown]) -> Markup:
    told = sentences([finding for one in shown for finding in one.findings])
    body = [tag("p", sentence) for sentence in told] or [tag("p", "Nothing was measured.")]
    return tag(
        "section",
        tag("h2", "What was found", id="found-head"),
        *body,
        id="found",
        aria_labelledby="found-head",
    )


def _told_apart(context: Context) -> list[Shown]:
    """What each document shows; files of one name are told apart by their folders."""
    shown = [module(loaded.kind).show(loaded, context) for loaded in context.documents]
    titles = [one.title for one in shown]
    return [
        dataclasses.replace(one, title=f"{one.title} in {loaded.path.parent}")
        if titles.count(one.title) > 1
        else one
        for one, loaded in zip(shown, context.documents, strict=True)
    ]


def _document(one: Shown, identifier: str) -> Markup:
    """Sections of several documents may have one title, so that a section's name has both."""
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in one.head]
    parts: list[Markup] = [tag("h2", one.title, id=identifier), tag("dl", *rows)]
    parts += [tag("p", remark, class_="remark") for remark in one.remarks]
    for section in one.sections:
        head = f"{section.identifier}-head"
        parts.append(
            tag(
                "section",
                tag("h3", section.title, id=head),
                section.body,
                id=section.identifier,
                aria_labelledby=f"{head} {identifier}",
            )
        )
    return tag("article", *parts, aria_labelledby=identifier)


def _contents(shown: Sequence[Shown]) -> Markup:
    items = [tag("li", tag("a", "What was found", href="#found"))]
    for one in shown:
        inner = [tag("li", tag("a", s.title, href=f"#{s.identifier}")) for s in one.sections]
        items.append(tag("li", one.title, tag("ul", *inner) if inner else None))
    return tag("nav", tag("ul", *items), aria_label="Contents")


def _asset(name: str) -> str:
    return (resources.files("dltune.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
