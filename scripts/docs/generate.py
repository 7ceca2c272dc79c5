"""Write the generated pages of docs/reference: commands, findings, settings, events and formats.

    python scripts/docs/generate.py [--check]

`--check` writes nothing: it names the pages that are stale and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pages import commands, events, findings, formats, python, settings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
# the modules of pages, each with the place that its pages are generated from
SOURCES = {
    "the options of dltune's commands": commands,
    "dltune/findings and dltune/systems/*/findings": findings,
    "dltune/plan/settings/space and dltune/systems/*/settings.py": settings,
    "dltune/system/perf": events,
    "dltune/schemas and the schemas of dltune/systems": formats,
    "the docstrings of public names": python,
}


def pages() -> dict[Path, str]:
    """Return the text of each generated page by its path."""
    return {
        REFERENCE / name: f"<!-- Generated from {source} by scripts/docs/generate.py; "
        f"do not edit. -->\n\n{text.strip()}\n"
        for source, module in SOURCES.items()
        for name, text in module.pages().items()
    }


def is_generated(page: Path) -> bool:
    return page.read_text(encoding="utf-8").startswith("<!-- Generated from")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only report stale pages")
    check = parser.parse_args().check
    wanted = pages()
    present = {page for page in REFERENCE.rglob("*.md") if is_generated(page)}
    stale = [page for page in wanted if not page.is_file() or page.read_text() != wanted[page]]
    stale += sorted(present - wanted.keys())
    for page in stale:
        if check:
            print(f"stale: {page.relative_to(REFERENCE.parents[1])}")
        elif page in wanted:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(wanted[page], encoding="utf-8")
        else:
            page.unlink()
    if check and stale:
        print("run: python scripts/docs/generate.py", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
