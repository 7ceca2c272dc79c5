"""Pictures of a report, one for each of its sections, as they stand in docs/images.

    python scripts/release/report_pictures.py report.html docs/images

Needs the packages of the `browser` extra and a Chromium on PATH. A section of profile.json is
written to report-profile-ops.png, say; what is taller than a screen is cut there.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

WIDTH, HEIGHT = 1200, 760
MARGIN = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, width in (("top", WIDTH), ("narrow", 360)):
            page = browser.new_page(
                viewport={"width": width, "height": HEIGHT},
                color_scheme="light" if name == "top" else "dark",
            )
            page.goto(arguments.report.resolve().as_uri())
            page.screenshot(path=arguments.folder / f"report-{name}.png")
            if name == "top":
                sections(page, arguments.folder)
            page.close()
        browser.close()


def sections(page: Page, folder: Path) -> None:
    for article in page.locator("article").all():
        # "Profile profile.json", "I/O io.json"
        kind = article.locator("h2").inner_text().split()[0].lower().replace("/", "")
        for section in article.locator("> section").all():
            section.scroll_into_view_if_needed()
            if section.locator("canvas").count():
                section.locator("canvas[data-right]").wait_for()
            name = (section.get_attribute("id") or "").partition("-")[2].rstrip("0")
            section.evaluate("section => scrollTo(0, section.offsetTop)")
            box = section.bounding_box()
            assert box
            left, top = box["x"] - MARGIN, max(box["y"], 0.0)
            page.screenshot(
                path=folder / f"report-{kind}-{name}.png",
                clip={
                    "x": left,
                    "y": top,
                    "width": WIDTH - left,
                    "height": min(box["height"] + MARGIN, HEIGHT - top),
                },
            )


if __name__ == "__main__":
    main()
