"""The pages of `docs/` against the code: what can be given is told, and links lead somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dltune.cli import cli

ROOT = Path(__file__).parent.parent
PAGES = {page: page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands(command: click.Command, *words: str) -> Iterator[tuple[str, click.Command]]:
    """All that can be called, by its words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands(below, *words, name)


@pytest.mark.parametrize(("words", "command"), [*commands(cli)])
def test_the_options_of_a_command_are_documented(words, command):
    verb, _, planner = words.partition(" ")
    named = (page for page in PAGES if page.stem.startswith(verb) or page.stem == planner)
    own = [PAGES[page] for page in named]
    pages = "\n".join(own or PAGES.values())
    options = (one for one in command.params if isinstance(one, click.Option) and not one.hidden)
    missing = [one.opts for one in options if not any(name in pages for name in one.opts)]
    assert not missing, words


def causes() -> Iterator[str]:
    for file in (ROOT / "dltune" / "findings").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant):
                    yield str(first.value)


def test_every_finding_is_documented():
    pages = "\n".join(PAGES.values())
    named = set(causes())
    assert len(named) > 60
    assert {cause for cause in named if cause not in pages} == set()


def anchors(text: str) -> set[str]:
    """Of a page's headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in _LINK.findall(_FENCED.sub("", PAGES[page])):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(PAGES[target]), link
