"""What the settings around the ops may gain, by what the profile shows alone."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.analysis.advice import Advice
from dltune.report.markup import Markup, tag
from dltune.report.table import table


def advice(found: Sequence[Advice], prefix: str) -> Markup:
    rows = [
        (
            ", ".join(one.settings),
            tag("span", one.sentence, class_="why"),
            str(one.gain or "cannot be told from a profile"),
        )
        for one in found
    ]
    caption = "To be measured by dltune tune, the largest expected gain first"
    return table(
        f"{prefix}-advice-table", caption, ("settings", "what was seen", "expected gain"), rows
    )
