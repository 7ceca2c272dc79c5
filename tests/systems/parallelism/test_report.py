"""Plans of parallelism on the page and for Perfetto."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections import defaultdict
from pathlib import Path

import divided
import msgspec
import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.plan.plan import new_plan
from dltune.report.page import page
from dltune.report.perfetto import trace
from dltune.views import Context, Loaded

NETWORK, CLUSTER = divided.network(), divided.cluster()
SECTION = divided.section(NETWORK, CLUSTER)
PLAN = new_plan(synthetic.machine(2), sections={"parallelism": SECTION})


def context(*documents: msgspec.Struct) -> Context:
    kinds = {type(NETWORK): "operators", type(CLUSTER): "topology", type(PLAN): "plan"}
    return Context(
        tuple(
            Loaded(Path(f"{kinds[type(one)]}.json"), f"dltune.{kinds[type(one)]}", one, f"d{n}")
            for n, one in enumerate(documents)
        )
    )


def drawn(text: str) -> dict[str, object]:
    (source,) = re.findall(r'<script type="application/json" id="[^"]*">(.*?)</script>', text)
    return dict(json.loads(source))


def test_a_page_with_what_the_plan_was_made_from_draws_the_step() -> None:
    text = page(context(PLAN, NETWORK, CLUSTER)).decode()
    source = drawn(text)
    assert source["end"] == round(SECTION.seconds * 1e9)
    (line,) = source["timelines"]
    assert {row["label"] for row in line["rows"]} <= {*SECTION.devices}
    for row in (*line["rows"], *line["links"]):
        at = 0
        for start, duration, name in zip(*[iter(row["slices"])] * 3, strict=True):
            at += start
            assert at + duration <= source["end"]
            assert 0 <= name < len(source["names"])
    assert "Divided operators" in text


def test_a_page_without_says_what_is_missing() -> None:
    text = page(context(PLAN, NETWORK)).decode()
    assert "No timeline of parallelism: the documents of small and small are missing" in text
    assert "application/json" not in text


def test_a_trace_has_a_row_for_each_device_and_link() -> None:
    events = json.loads(gzip.decompress(trace(context(PLAN, NETWORK, CLUSTER))))["traceEvents"]
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1e3)
            rows[event["tid"]].append((start, start + round(event["dur"] * 1e3), event["cat"]))
    for slices in rows.values():
        slices.sort()
        assert len({category for _, _, category in slices}) == 1
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices))
    assert max(s[1] for slices in rows.values() for s in slices) == round(SECTION.seconds * 1e9)
    sent = sum(e["args"]["bytes"] for e in events if e["ph"] == "X" and e["cat"] == "transfer")
    assert sent == SECTION.bytes
    with pytest.raises(UsageError, match="are missing"):
        trace(context(PLAN))
