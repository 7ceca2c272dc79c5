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
from dltune.report.markup import Markup, rendered
from dltune.report.reading import module
from dltune.report.section import Context, Shown
from dltune.views import Headline

SENTENCES = 3


def page(context: Context) -> bytes:
    """The whole report, UTF-8. Raises UsageError when no document has anything to show."""
    shown = _told_apart(context)
    if not any(one.sections for one in shown):
        remarks = [remark for one in shown for remark in one.remarks]
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
        title="dltune: " + ", ".join(one.title for one in shown),
        style=Markup(style),
        script=Markup(script),
        shown=shown,
        found=sentences([headline for one in shown for headline in one.headlines]),
    ).encode()


def sentences(headlines: Sequence[Headline]) -> list[str]:
    """What was found, in three sentences: the verdict, the decision, the time, the reason."""
    ordered = sorted(headlines, key=lambda one: one.rank)
    return [one.sentence for one in ordered[:SENTENCES]]


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


def _asset(name: str) -> str:
    return (resources.files("dltune.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
