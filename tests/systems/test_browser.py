"""The page in a real browser: nothing in the console, sorting, filtering, zooming, accessibility.

Its documents are those of core and of all systems that are installed. Needs the packages of the
`browser` extra and a Chromium on PATH (Debian: chromium); skipped else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import exhibits
import msgspec
import pytest
import results
from installed import SYSTEMS
from installed import exhibits as exhibits_of_systems
from owners import NEEDS_ALL

from dltune.plan.plan import with_sections
from dltune.report.page import page
from dltune.schemas.profile import Profile
from dltune.views import Context, Loaded

EVIL = '"><img src=x onerror="window.caught=1"><script>window.caught=1</script>\u202e'


def written(folder: Path, name: str, documents: Sequence[tuple[str, msgspec.Struct]]) -> Path:
    loaded = tuple(
        Loaded(Path(f"{kind}{n}.json"), f"dltune.{kind}", document, f"d{n}")
        for n, (kind, document) in enumerate(documents)
    )
    file = folder / f"{name}.html"
    file.write_bytes(page(Context(loaded)))
    return file


def tuned(profile: Profile) -> list[tuple[str, msgspec.Struct]]:
    plan = exhibits.plan(profile, "per-type+co-run")
    plan = with_sections(plan, settings=exhibits.settings())
    if "memory" in SYSTEMS:
        from exhibits_memory import lean

        plan = with_sections(plan, memory=lean(profile))
    times = {"recommended": [0.05, 0.051, 0.052] * 4, "plan": [0.04, 0.041, 0.042] * 4}
    bench = exhibits.bench(plan, profile, times)
    return [("profile", profile), ("plan", plan), ("bench", bench)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    profile = exhibits.profile()
    step = profile.steps[0]
    nodes = tuple(msgspec.structs.replace(n, name=f"{EVIL}{n.name}", type=EVIL) for n in step.nodes)
    evil = msgspec.structs.replace(
        profile,
        notes=(EVIL,),
        steps=(msgspec.structs.replace(step, name=EVIL, nodes=nodes),),
        ops=tuple(msgspec.structs.replace(op, key=EVIL + op.key, type=EVIL) for op in profile.ops),
    )
    others = [
        *(
            (name.partition(":")[0].removeprefix("dltune."), document)
            for each in exhibits_of_systems().values()
            for name, document in each.documents().items()
            if name in each.PAGE
        ),
        ("gate", results.gated("fail")),
        ("io", results.watched()),
        ("io", results.read_in_every_way()),
        ("diagnosis", results.diagnosed()),
    ]
    pages = {"good": tuned(profile), "evil": tuned(evil), "others": others}
    return {name: written(folder, name, documents) for name, documents in pages.items()}


class Opened:
    """A page, all that its console said, and all that it asked of a network."""

    def __init__(self, browser: Any, file: Path, width: int = 1600, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.context.set_default_timeout(240_000)  # milliseconds: the machine may be busy
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri(), wait_until="load")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("name", ["good", "evil", "others"])
def test_nothing_is_wrong(
    browser: Any, files: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    with Opened(browser, files[name], width, scheme) as opened:
        page = opened.page
        for section in page.query_selector_all("article > section"):
            section.scroll_into_view_if_needed()
        if name != "others":
            page.wait_for_selector("canvas[data-right]")
        assert opened.said == []
        assert opened.asked == [files[name].as_uri()]
        assert page.evaluate("window.caught") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("name", ["good", "others"])
def test_axe_finds_nothing(
    browser: Any, files: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    package = pytest.importorskip("axe_core_python", reason="needs the browser extra")
    source = (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")
    with Opened(browser, files[name], width, scheme) as opened:
        opened.page.evaluate(
            "document.querySelectorAll('section').forEach("
            "s => s.style.contentVisibility = 'visible')"
        )
        opened.page.evaluate(source)
        found = opened.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
            ".then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
        )
    assert found == []


@NEEDS_ALL
def test_every_section_is_opened_here_and_in_the_manual(
    browser: Any, files: dict[str, Path]
) -> None:
    """The manual's table names all of them, and it has a picture of each."""
    folder = Path(__file__).parents[2] / "docs" / "explanation"
    manual = (folder / "report.md").read_text(encoding="utf-8")
    rows = manual.partition("| section | from |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in row.split(" | ")[0][2:].split(", ")}
    there: set[str] = set()
    for name in ("good", "others"):
        with Opened(browser, files[name]) as opened:
            there.update(opened.page.locator("article > section > h3").all_text_contents())
    assert named == there
    pictures = dict(re.findall(r"(?<!!)\[([^]]+)\]\((\.\./images/[^)]+)\)", manual))
    assert named <= pictures.keys()
    assert all((folder / picture).is_file() for picture in pictures.values())


def column(page: Any, table: str, number: int) -> list[str]:
    return list(
        page.eval_on_selector_all(
            f"#{table} tbody tr:not([hidden]) td:nth-child({number})",
            "cells => cells.map(cell => cell.textContent)",
        )
    )


def test_tables_are_sorted_and_filtered_by_keyboard(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["good"]) as opened:
        page = opened.page
        head = page.locator("#d0-ops-table th", has_text="1 thread ms")
        number = head.evaluate("cell => cell.cellIndex") + 1
        head.locator("button").focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        values = [float(text) for text in column(page, "d0-ops-table", number)]
        assert values == sorted(values, reverse=True)
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert [float(t) for t in column(page, "d0-ops-table", number)] == sorted(values)
        page.locator("#d0-ops-table th button", has_text="op").first.click()
        names = column(page, "d0-ops-table", 1)
        assert names == sorted(names, key=str.lower)
        assert page.locator("#d0-ops-table th[aria-sort=ascending]").count() == 1
        page.locator("#d0-ops-table-filter").fill("backpropfilter conv")
        left = column(page, "d0-ops-table", 1)
        assert 0 < len(left) < len(names)
        assert all("BackpropFilter" in name for name in left)
        told = page.locator("output[for=d0-ops-table-filter]").text_content()
        assert told == f"{len(left)} of {len(names)} rows"


def test_figures_are_sorted_by_their_values(browser: Any, tmp_path: Path) -> None:
    read = results.read_in_every_way()
    block = read.experiment.blocks[0]
    blocks = [msgspec.structs.replace(block, block=size) for size in (1 << 16, 1 << 20, 1 << 12)]
    experiment = msgspec.structs.replace(read.experiment, blocks=tuple(blocks))
    read = msgspec.structs.replace(read, experiment=experiment)
    with Opened(browser, written(tmp_path, "read", [("io", read)])) as opened:
        opened.page.locator("#d0-ways1-table th button", has_text="request").click()
        assert column(opened.page, "d0-ways1-table", 2) == ["1.0 MiB", "64 KiB", "4.0 KiB"]


def shown(page: Any) -> tuple[int, int]:
    data = page.locator("canvas").evaluate("c => [c.dataset.left, c.dataset.right]")
    return int(data[0]), int(data[1])


def test_timelines_zoom_and_tell_by_keyboard_and_mouse(
    browser: Any, files: dict[str, Path]
) -> None:
    with Opened(browser, files["good"]) as opened:
        page = opened.page
        canvas = page.locator("canvas")
        canvas.scroll_into_view_if_needed()
        page.wait_for_selector("canvas[data-right]")
        start, end = shown(page)
        assert start == 0
        canvas.focus()
        page.keyboard.press("+")
        left, right = shown(page)
        assert right - left == pytest.approx(end / 2, abs=2)
        page.keyboard.press("ArrowLeft")
        assert shown(page)[0] < left
        page.keyboard.press("n")
        first = page.locator("output.at").text_content()
        page.keyboard.press("n")
        second = page.locator("output.at").text_content()
        assert first
        assert second
        assert first != second
        assert "measured" in second
        for _ in range(9):
            page.keyboard.press("ArrowDown")
        assert "simulated" in page.locator("output.at").text_content()
        page.keyboard.press("0")
        assert shown(page) == (0, end)
        for _ in range(60):
            page.keyboard.press("+")
        left, right = shown(page)
        assert right - left == 200, "nanoseconds, the closest look"
        page.get_by_role("button", name="show the whole step").click()
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -100)
        page.keyboard.up("Control")
        page.wait_for_function(f"document.querySelector('canvas').dataset.right < {end}")
        assert opened.said == []


def test_the_theme_can_be_turned(browser: Any, files: dict[str, Path]) -> None:
    with Opened(browser, files["good"]) as opened:
        background = "getComputedStyle(document.body).backgroundColor"
        before = opened.page.evaluate(background)
        opened.page.locator("#theme").click()
        assert opened.page.evaluate(background) != before
