"""What the settings around the ops may gain, by what the profile shows alone."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.analysis.advice import Advice
from dltune.report.markup import Markup
from dltune.report.table import html
from dltune.tables import Prose, Table, columns


def advice(found: Sequence[Advice], prefix: str) -> Markup:
    rows = [
        (
            ", ".join(one.settings),
            Prose(one.sentence),
            str(one.gain or "cannot be told from a profile"),
        )
        for one in found
    ]
    title = "to be measured by dltune tune, the largest expected gain first"
    table = Table(title, columns("settings", "what was seen", "expected gain"), rows)
    return html(table, f"{prefix}-advice-table")
