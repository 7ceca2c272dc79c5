"""What follows from a report: each finding with its evidence, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.report.markup import Markup, tag


def findings(found: Sequence[tuple[str, str, str | None]]) -> Markup:
    """Each: what is said, the evidence for it, and what to do, if anything is."""
    if not found:
        return tag("p", "Nothing was found to be wrong.")
    items = [
        tag(
            "li",
            tag("p", tag("b", sentence(said)), " ", sentence(evidence)),
            tag("p", sentence(advice)) if advice else None,
        )
        for said, evidence, advice in found
    ]
    return tag("ol", *items)


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
