"""What a kind of document adds to the page: sections, and sentences for its head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from dltune.documents.finding import Finding
from dltune.findings.finding_text import format_cost, format_gain, to_sentence
from dltune.report.markup import Markup, tag
from dltune.views import Headline

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True)
class Section:
    """`identifier`: unique on the page, a link's target. `title` stands in the list of contents."""

    identifier: str
    title: str
    body: Markup


@dataclass(frozen=True)
class Shown:
    """`head`: (name, value) pairs on where the document is from. `remarks`: what to be wary of."""

    title: str
    head: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    headlines: Sequence[Headline] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Loaded:
    """A document and its file. `prefix`: begins the identifiers of its sections."""

    path: Path
    kind: str
    document: msgspec.Struct
    prefix: str


@dataclass(frozen=True)
class Context:
    """All documents of the page, so that a plan finds its profile and a bench its plan."""

    documents: Sequence[Loaded]

    def of(self, kind: type[S]) -> list[S]:
        """The documents of this kind: plans, say."""
        documents = (loaded.document for loaded in self.documents)
        return [document for document in documents if isinstance(document, kind)]


class Kind(Protocol):
    """A module of `report/kinds`: `dltune.plan/1` is shown by `plan.py`.

    `load` raises UsageError, as all loaders of documents do. `show` says what the page has of it.
    """

    load: Callable[[Path], msgspec.Struct]
    show: Callable[[Loaded, Context], Shown]


def findings(found: Sequence[Finding]) -> Markup:
    """Each: what is claimed, the evidence, what it costs, what to do, and what that is expected to
    bring."""
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
