"""The documentation against the code: the reference is complete and fresh, the site builds."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from owners import NEEDS_ALL

import dltune
from dltune.cli import cli
from dltune.findings.rule import rules
from dltune.gate.limits import METRICS, Config, Limit
from dltune.plan.settings.space import SPACE
from dltune.system.perf import events, presets
from dltune.system.perf.presets import PRESETS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dltune"
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
SITE = ROOT / "scripts" / "docs"
# what dltune's own processes pass to one another
INTERNAL = {"dltune.standalone"}
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=[\"']?([^\s\"'>]+)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# in backticks: a folder or file with a slash, or a file of code; of a placeholder NAME any text
_PATH = re.compile(r"`((?:[\w.*-]+/)+[\w.*-]*|[\w*]+\.(?:py|cc|h|md|toml))`")
READMES = [str(page.relative_to(ROOT)) for page in sorted(PACKAGE.glob("systems/*/README.md"))]
# the pages that name places of the code, each with the folders to which its paths are relative
PLACES = {
    "docs/explanation/where-is-what.md": (ROOT,),
    "docs/explanation/architecture.md": (PACKAGE, ROOT),
    **{name: ((ROOT / name).parent, ROOT) for name in READMES},
}


def commands(command: click.Command, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Every command by its words, groups too."""
    if words:
        yield " ".join(words), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, *words, name)


@pytest.mark.parametrize(("words", "command"), [*commands(cli)])
def test_the_options_of_a_command_are_in_the_reference(words, command):
    page = (REFERENCE / "commands" / f"{words.replace(' ', '-')}.md").read_text()
    options = (one for one in command.params if isinstance(one, click.Option) and not one.hidden)
    assert [one.opts for one in options if not all(name in page for name in one.opts)] == []


@NEEDS_ALL
def test_findings_settings_and_events_are_in_the_reference():
    findings, settings, counted = (
        (REFERENCE / f"{name}.md").read_text() for name in ("findings", "settings", "events")
    )
    assert len(rules()) > 60
    assert [rule.name for rule in rules() if f"### {rule.name}\n" not in findings] == []
    assert [one.name for one in SPACE if f"## {one.name}\n" not in settings] == []
    names = [*events.HARDWARE, *events.CACHE, *events.SOFTWARE, *PRESETS]
    names += [event.name for event in presets.KNL_EVENTS]
    assert [name for name in names if f"`{name}`" not in counted] == []


def test_the_configuration_of_gates_is_in_the_reference():
    page = (REFERENCE / "gate.md").read_text()
    keys = [field.name for field in dataclasses.fields(Config) if field.name != "source"]
    keys[keys.index("limits")] = "metrics"
    defaults = {f.name: f.default for f in dataclasses.fields(Config) if f.name in keys}
    for key in keys:
        (line,) = re.findall(rf"^- `{key}`: .*?(?=^- |^$)", page, re.MULTILINE | re.DOTALL)
        default = defaults.get(key)
        if default is not None:
            value = f'"{default}"' if isinstance(default, str) else f"{default:g}"
            assert f"Default:\n  `{value}`" in line or f"Default: `{value}`" in line, key
    limits = [f.name for f in dataclasses.fields(Limit) if f.name != "metric"]
    assert [name for name in limits if f"`{name}`" not in page] == []
    assert [name for name in METRICS if f"| `{name}` |" not in page] == []


def test_schemas_are_in_the_reference():
    pages = "\n".join(page.read_text() for page in (REFERENCE / "formats").glob("*.md"))
    found = {
        match[1]
        for source in PACKAGE.rglob("*.py")
        for match in re.finditer(r"\"(dltune\.[a-z-]+/\d+)\"", source.read_text())
    }
    newest: dict[str, int] = {}
    for schema in found:
        name, _, version = schema.partition("/")
        newest[name] = max(int(version), newest.get(name, 0))
    assert len(newest) > 15
    assert [n for n, v in newest.items() if n not in INTERNAL and f"{n}/{v}" not in pages] == []


@NEEDS_ALL
def test_generated_pages_are_fresh():
    """Else: python scripts/docs/generate.py"""
    done = subprocess.run(
        [sys.executable, SITE / "generate.py", "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_extension_needs_the_public_interface_alone() -> None:
    page = (REFERENCE / "python.md").read_text()
    public = {
        f"{module}.{name}"
        for part in page.split("\n## ")[1:]
        for module in [part.partition("\n")[0]]
        for name in re.findall(r"^- `(\w+)`:", part, re.MULTILINE)
    }
    assert {f"dltune.{name}" for name in dltune.__all__} - {"dltune.__version__"} <= public
    source = (ROOT / "tests" / "plan" / "foreign" / "dltune_waiting.py").read_text()
    tree = ast.parse(source)
    modules: dict[str, str] = {}
    used = set()
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            whole = f"{node.module}.{alias.name}"
            if (PACKAGE.parent / f"{whole.replace('.', '/')}.py").exists():
                modules[alias.name] = whole
            elif whole.startswith("dltune."):
                used.add(whole)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            used.add(f"{modules[ast.unparse(node.value)]}.{node.attr}")
    assert len(used) > 15
    assert {name for name in used if not name.startswith("dltune.schemas.")} - public == set()


def test_the_site_builds_strictly_and_loads_nothing_from_outside(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mkdocs", "build", "--strict"),
            *("--config-file", SITE / "mkdocs.yml", "--site-dir", tmp_path / "site"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    assert (site / "search" / "search_index.json").is_file()
    pages = [*site.rglob("*.html")]
    assert len(pages) > 80
    styles = [style.read_text() for style in site.rglob("*.css")]
    assert not any(re.search(r"url\([\"']?(https?:)?//", style) for style in styles)
    for page in pages:
        loaded = _LOADED.findall(page.read_text())
        assert [address for address in loaded if "//" in address] == [], page


def test_the_site_refuses_what_is_loaded_from_outside() -> None:
    sys.path.insert(0, str(SITE))
    try:
        hooks = pytest.importorskip("hooks")
    finally:
        sys.path.remove(str(SITE))
    page = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    link = '<a href="https://example.org">a link</a> <link rel="next" href="https://a.org/b.html">'
    assert hooks.on_post_page(link, page) == link
    for loaded in ('<img alt="x" src="https://a.org/b.png">', "<script src=//a.org/b.js></script>"):
        with pytest.raises(hooks.PluginError, match=r"index\.md loads"):
            hooks.on_post_page(loaded, page)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", *READMES])
def test_links_into_the_documentation_lead_somewhere(name):
    for link in _LINK.findall(_FENCED.sub("", (ROOT / name).read_text())):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / name).parent / file if file else ROOT / name
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


@NEEDS_ALL
@pytest.mark.parametrize("page", PLACES)
def test_places_named_on_a_page_exist(page: str) -> None:
    names = _PATH.findall(_FENCED.sub("", (ROOT / page).read_text()))
    assert len(names) > 5
    missing = []
    for name in names:
        pattern = name.rstrip("/").replace("NAME", "*")
        # a name alone, such as `inject/`, can be anywhere in the package
        deeper = PACKAGE in PLACES[page] and "/" not in pattern and any(PACKAGE.rglob(pattern))
        if not deeper and not any(any(folder.glob(pattern)) for folder in PLACES[page]):
            missing.append(name)
    assert missing == []


def test_each_question_on_places_has_one_answer() -> None:
    text = (ROOT / "docs" / "explanation" / "where-is-what.md").read_text()
    questions = re.findall(r"^- \*\*.*?\?\*\* .*?(?=^- |^$)", text, re.MULTILINE | re.DOTALL)
    assert len(questions) == 30
    assert [one for one in questions if len(_PATH.findall(one)) != 1] == []


@NEEDS_ALL
def test_every_system_has_a_readme() -> None:
    systems = [path.parent for path in PACKAGE.glob("systems/*/extension.py")]
    assert systems
    assert [path.name for path in systems if not (path / "README.md").is_file()] == []
