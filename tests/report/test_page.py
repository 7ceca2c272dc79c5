"""The page: well-formed, self-contained, escaped, the same numbers as the documents."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from pathlib import Path

import exhibits
import msgspec
import pytest
from page_parsed import Page, parsed

from dltune.analysis.roofline import analyse
from dltune.base.errors import UsageError
from dltune.plan.plan import merge_section, with_sections
from dltune.report.page import known, page, read
from dltune.schemas.bench import Bench
from dltune.schemas.plan import Plan
from dltune.schemas.profile import Profile
from dltune.views import Context, Loaded

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><!--<script>",
    "\u202egnp.exe\x1b[31m\x00\r\n\u2028",
    "' onmouseover='alert(3)",
    "n" * 10_000,
)


def context(*documents: Profile | Plan | Bench) -> Context:
    kinds = {Profile: "dltune.profile", Plan: "dltune.plan", Bench: "dltune.bench"}
    return Context(
        tuple(
            Loaded(Path(f"{kinds[type(d)][7:]}{n}.json"), kinds[type(d)], d, f"d{n}")
            for n, d in enumerate(documents)
        )
    )


def everything(strategy: str = "per-type+co-run") -> tuple[Profile, Plan, Bench]:
    profile = exhibits.profile()
    plan = exhibits.plan(profile, strategy)
    times = {"recommended": [0.05, 0.051, 0.052] * 4, "plan": [0.04, 0.041, 0.042] * 4}
    return profile, plan, exhibits.bench(plan, profile, times)


@pytest.fixture(scope="module")
def whole() -> bytes:
    return page(context(*everything()))


def links(found: Page) -> set[str]:
    return {str(e.attributes["href"]) for e in found.of("a")}


def test_it_is_well_formed_and_names_things_once(whole: bytes) -> None:
    found = parsed(whole)
    names = [e.attributes["id"] for e in found.elements if "id" in e.attributes]
    assert len(names) == len(set(names))
    assert {link.removeprefix("#") for link in links(found)} <= set(names)
    for element in found.elements:
        for attribute in ("aria-labelledby", "for", "aria-describedby", "data-table"):
            if attribute in element.attributes:
                assert set(element.attributes[attribute].split()) <= set(names)


def test_it_needs_nothing_beside_it(whole: bytes) -> None:
    found = parsed(whole)
    assert {e.name for e in found.elements} & {"link", "iframe", "img", "object", "embed"} == set()
    for element in found.elements:
        assert "src" not in element.attributes
        assert not any(name.startswith("on") or name == "style" for name in element.attributes)
    assert all(link.startswith("#") for link in links(found))
    policy = next(
        str(e.attributes["content"])
        for e in found.of("meta")
        if e.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    code = [e for e in found.of("script") if "type" not in e.attributes]
    assert len(code) == 1
    for element in (*code, *found.of("style")):
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_what_can_be_reached_without_a_mouse(whole: bytes) -> None:
    """Own rules, beside axe-core's in test_browser.py."""
    found = parsed(whole)
    assert found.of("html")[0].attributes["lang"] == "en"
    assert [e.name for e in found.elements if e.name in ("h1", "main", "nav")] == [
        "h1",
        "nav",
        "main",
    ]
    levels = [int(e.name[1]) for e in found.elements if e.name in ("h1", "h2", "h3", "h4")]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for table in found.of("table"):
        assert "section" in table.path
    assert len(found.of("caption")) == len(found.of("table"))
    for element in found.elements:
        if element.name == "th":
            assert element.attributes["scope"] == "col"
        if element.name == "button":
            assert element.text.strip() or element.attributes.get("aria-label")
        if element.attributes.get("role") == "img":
            assert element.attributes["aria-label"]
        if element.name == "canvas" or "wide" in str(element.attributes.get("class")).split():
            assert element.attributes["tabindex"] == "0"
            assert element.attributes["aria-label"]


def test_three_sentences_of_what_was_found(whole: bytes) -> None:
    found = parsed(whole)
    section = next(e for e in found.of("section") if e.attributes["id"] == "found")
    told = [e.text for e in found.of("p") if e.path[-1] == "section"][:3]
    assert all(sentence in section.text and sentence.endswith(".") for sentence in told)
    assert "faster than recommended: 0.8" in told[0]
    assert "per-type+co-run" in told[1]
    assert "A step takes 42.0 ms" in told[2]


def test_the_numbers_are_the_documents(whole: bytes) -> None:
    profile, plan, _ = everything()
    text = parsed(whole).of("main")[0].text
    for figures in analyse(profile).top(3):
        assert figures.best is not None
        assert figures.op.key in text
        assert f"{figures.best.time.median * 1e3:.3f}" in text
    for prediction in plan.sections["threads"].predictions:
        assert f"{prediction.seconds * 1e3:.1f}" in text
    for part in profile.steps[0].parts:
        assert f"{part.name} {part.seconds * 1e3:.3g} ms" in text


def test_the_timelines_data_are_the_profiles(whole: bytes) -> None:
    profile = exhibits.profile()
    source = next(e for e in parsed(whole).of("script") if e.attributes.get("id") == "d0-slices0")
    found = json.loads(source.text)
    assert [line["title"] for line in found["timelines"]] == [
        "measured",
        "simulated: own settings 2x2",
        "simulated: plan per-type+co-run",
    ]
    got = []
    for row in found["timelines"][0]["rows"]:
        at = 0
        for gap, duration, node in zip(*(row["slices"][n::3] for n in range(3)), strict=True):
            at += gap
            got.append((found["names"][node], at, at + duration))
    wanted = [
        (node.name, round(node.start * 1e9), round(node.end * 1e9))
        for node in profile.steps[0].nodes
        if node.start is not None and node.end is not None
    ]
    assert sorted(got) == sorted(wanted)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    profile, plan, bench = everything()
    step = profile.steps[0]
    evil = msgspec.structs.replace(
        profile,
        command=(name,),
        notes=(name,),
        machine=msgspec.structs.replace(profile.machine, name=name),
        steps=(
            msgspec.structs.replace(
                step,
                name=name,
                nodes=tuple(
                    msgspec.structs.replace(node, name=f"{name}{n}", type=name)
                    for n, node in enumerate(step.nodes)
                ),
                lines=tuple(msgspec.structs.replace(line, where=name) for line in step.lines),
            ),
        ),
        ops=tuple(
            msgspec.structs.replace(op, key=f"{name}{n}", type=name, inputs=(name,))
            for n, op in enumerate(profile.ops)
        ),
        counters=msgspec.structs.replace(profile.counters, asked=name, why=name),
    )
    settings = tuple(
        msgspec.structs.replace(setting, name=name) if setting.name != bench.reference else setting
        for setting in bench.settings
    )
    threads = msgspec.structs.replace(
        plan.sections["threads"],
        ops=tuple(
            msgspec.structs.replace(op, key=name + op.key) for op in plan.sections["threads"].ops
        ),
    )
    shown = context(
        evil,
        msgspec.structs.replace(with_sections(plan, threads=threads), machine_name=name),
        msgspec.structs.replace(bench, settings=settings, command=(name,), strategy=name),
    )
    clean = parsed(page(context(profile, plan, bench)))
    made = page(shown)
    found = parsed(made)
    assert {e.name for e in found.elements} <= {e.name for e in clean.elements}
    assert len(found.of("script")) == len(clean.of("script"))
    assert not any(a.startswith("on") for e in found.elements for a in e.attributes)
    text = made.decode()
    assert not any(character in text for character in "\u202e\x1b\x00\r\u2028")
    assert len(made) < 3_000_000


def test_a_profile_alone_and_one_without_anything() -> None:
    profile = exhibits.profile()
    alone = parsed(page(context(profile))).of("main")[0].text
    assert "the fastest measured, without a plan" in alone
    nothing = msgspec.structs.replace(profile, steps=(), ops=(), memory=None, counters=None)
    text = parsed(page(context(nothing))).of("main")[0].text
    assert "No training step was found" in text
    assert "no simulated timelines" in text.lower()


def test_a_bench_stays_with_its_plan_when_settings_are_put_into_it() -> None:
    before = "before settings were put into the plan"
    profile, plan, bench = everything()
    tuned = with_sections(plan, settings=exhibits.settings())
    text = page(context(profile, tuned, bench)).decode()
    assert before in text
    assert "a plan that is not on this page" not in text
    rows = parsed(text.encode()).of("tr")
    # as tune puts them in
    nothing = msgspec.structs.replace(exhibits.settings(), chosen=())
    put_in = merge_section(plan, "settings", nothing, profile.machine)
    assert before in page(context(profile, put_in, bench)).decode()
    assert any("per-type+co-run" in row.text and "41.0" in row.text for row in rows), (
        "it was measured"
    )
    assert before not in page(context(profile, plan, bench)).decode()
    other = everything("per-type")[1]
    text = page(context(profile, with_sections(other, settings=None), bench)).decode()
    assert "a plan that is not on this page" in text


def test_a_bench_without_turns() -> None:
    _, _, bench = everything()
    settings = tuple(
        msgspec.structs.replace(setting, turns=(), summary=None) for setting in bench.settings
    )
    empty = msgspec.structs.replace(bench, settings=settings, partial="the job ended")
    with pytest.raises(UsageError, match=r"nothing to show: .*ended\. No setting was measured"):
        page(context(empty))
    text = parsed(page(context(exhibits.profile(), empty))).of("main")[0].text
    assert "No setting was measured" in text
    assert "partial: the job ended" in text


def test_a_plan_of_other_graphs_is_told() -> None:
    profile, plan, _ = everything()
    other = msgspec.structs.replace(plan, profile="0" * 64, signatures=("another",))
    text = parsed(page(context(profile, other))).of("main")[0].text
    assert "made for graphs that are not in the profiles" in text


def test_a_large_profile_stays_small() -> None:
    profile = exhibits.profile(layers=900)
    assert sum(node.op is not None for node in profile.steps[0].nodes) > 6000
    assert len(page(context(profile))) < 3_000_000


def test_kinds_are_found_by_their_schema() -> None:
    assert {"dltune.profile", "dltune.plan", "dltune.bench"} <= set(known())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"[1, 2]", "is not a dltune file"),
        (b'{"schema": "dltune.profile/99"}', "this version of dltune reads"),
        (b'{"schema": "os.path/1"}', "cannot show"),
        (b'{"schema": "dltune.__init__/1"}', "cannot show"),
        (b'{"schema": "dltune.profile/1", "interval": NaN}', "is not"),
    ],
)
def test_files_that_are_no_documents(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read([file])


def test_a_file_named_twice(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(msgspec.json.encode(everything()[1]))
    with pytest.raises(UsageError, match="named twice"):
        read([file, tmp_path / "." / "plan.json"])


def test_files_of_one_name_are_told_apart() -> None:
    profile = exhibits.profile()
    two = tuple(
        Loaded(Path(folder) / "profile.json", "dltune.profile", profile, prefix)
        for folder, prefix in (("before", "d0"), ("after", "d1"))
    )
    heads = [element.text for element in parsed(page(Context(two))).of("h2")]
    assert heads[1:] == ["Profile profile.json in before", "Profile profile.json in after"]
