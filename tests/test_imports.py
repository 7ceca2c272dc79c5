"""The house as docs/explanation/architecture.md draws it: a line imports only lines above it."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import owners
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dltune"


# those that are installed: each is a folder of systems/
SYSTEMS = tuple(sorted(path.parent.name for path in PACKAGE.glob("systems/*/extension.py")))
# the folders that hold the files of one planner
PLANNERS = tuple(
    str(path.parent.relative_to(PACKAGE))
    for path in sorted(PACKAGE.rglob("planner.py"))
    if path.parent.name != "plan"
)


def drawn() -> list[str]:
    """Files and folders in the order of the drawing."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    (block,) = re.findall(r"^```\n(base/.*?)^```$", text, re.M | re.S)
    heads = [re.split(r" {2,}", line)[0] for line in block.splitlines()]
    return [name.strip().rstrip("/") for head in heads for name in head.split(",")]


def part(path: str, names: list[str]) -> str | None:
    """The longest name of the drawing that this path (or dotted name) is in."""
    path = path.replace(".", "/")
    found = [name for name in names if path == name or path.startswith(f"{name}/")]
    return max(found, key=len, default=None)


@functools.cache
def imported(source: Path) -> list[str]:
    """What it imports of dltune, wherever in the file, without the package's own name."""
    return list(_imported(source))


def _imported(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (n.removeprefix("dltune.") for n in names if n.startswith("dltune."))


SOURCES = [
    (source, str(source.relative_to(PACKAGE).with_suffix("")).removesuffix("/__init__"))
    for source in sorted(PACKAGE.rglob("*.py"))
    if source.parent != PACKAGE or source.stem in drawn()
]


def test_every_folder_is_drawn() -> None:
    there = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
    adapters = {"frameworks/tensorflow", "frameworks/pytorch"}
    planners = {planner for planner in PLANNERS if planner.startswith("plan/")}
    modules = {"core", "extensions", "stats", "turns", "views"}
    names = drawn()
    assert there | adapters | planners | modules == set(names)
    assert len(names) == len(set(names))


def test_imports_run_one_way() -> None:
    names = drawn()
    upwards = []
    for source, path in SOURCES:
        mine = part(path, names)
        assert mine, path
        for name in imported(source):
            other = part(name, names)
            if other and names.index(other) > names.index(mine):
                upwards.append(f"{path} imports {name}")
    assert upwards == []


def test_no_planner_knows_another() -> None:
    assert len(PLANNERS) == 2 + sum(len(owners.SYSTEMS[name].planners) for name in SYSTEMS)
    for source, path in SOURCES:
        mine = part(path, [*PLANNERS])
        for name in imported(source):
            other = part(name, [*PLANNERS])
            assert not (mine and other and other != mine), (path, name)


def sections_asked_for(source: Path) -> Iterator[str]:
    """The sections of a plan that it names: `"x" in plan.sections`, `plan.sections["x"]`."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Compare):
            asked, of = [node.left], [*node.comparators]
        elif isinstance(node, ast.Subscript):
            asked, of = [node.slice], [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked, of = node.args, [node.func.value]
        else:
            continue
        if any(isinstance(one, ast.Attribute) and one.attr == "sections" for one in of):
            yield from (str(one.value) for one in asked if isinstance(one, ast.Constant))


def test_no_planner_asks_for_the_section_of_another() -> None:
    for source, path in SOURCES:
        mine = part(path, [*PLANNERS])
        for name in sections_asked_for(source):
            assert not mine or name == load(mine), (path, name)


def load(planner: str) -> str:
    """The name of the planner in this folder."""
    module = importlib.import_module(f"dltune.{planner.replace('/', '.')}.planner")
    return str(module.PLANNER.name)


def test_core_imports_no_system_and_no_system_another() -> None:
    systems = [f"systems/{name}" for name in SYSTEMS]
    assert {p.name for p in (PACKAGE / "systems").iterdir() if p.is_dir()} - {"__pycache__"} == {
        *SYSTEMS
    }
    crossing = []
    for source, path in SOURCES:
        mine = part(path, systems)
        for name in imported(source):
            other = part(name, systems)
            if other not in (None, mine):
                crossing.append(f"{path} imports {name}")
    assert crossing == []


@pytest.mark.parametrize("door", ["plan", "run", "show", "report"])
def test_what_uses_planners_names_none(door: str) -> None:
    """The commands that know planners through the registry alone, and what they stand on."""
    sources = [PACKAGE / "cli" / f"{door}.py", *(PACKAGE / "plan" / "run").glob("*.py")]
    sources += [*(PACKAGE / "plan").glob("*.py"), PACKAGE / "report" / "kinds" / "plan.py"]
    for source in sources:
        assert not [name for name in imported(source) if part(name, [*PLANNERS])], source


def test_frameworks_are_imported_in_their_adapters() -> None:
    for source, path in SOURCES:
        if not {"tensorflow", "jax", "inject"}.isdisjoint(path.split("/")):
            continue
        for node in ast.walk(ast.parse(source.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            foreign = ("tensorflow", "keras", "jax")
            assert not [m for m in modules if m.split(".")[0] in foreign], path


def test_what_runs_inside_a_job_imports_nothing_of_dltune() -> None:
    inside = [*PACKAGE.glob("**/inject/*.py"), *PACKAGE.glob("frameworks/bootstrap/*.py")]
    inside += PACKAGE.glob("systems/parallelism/jax/gradients_rank.py")
    folders = {one.parent.parent.name for one in inside}
    assert folders >= {"tensorflow", "frameworks"} | {"ranks"}.intersection(SYSTEMS)
    for source in inside:
        assert list(imported(source)) == [], source


@pytest.mark.parametrize(
    "module",
    [
        *("job.ranks", "job.subprocesses", "native.build", "gate.accounted"),
        *("systems.parallelism.jax.links", "systems.parallelism.jax.operator_times"),
    ],
)
def test_what_other_pythons_run_needs_the_standard_library_alone(module: str) -> None:
    if module.startswith("systems.") and module.split(".")[1] not in SYSTEMS:
        pytest.skip("the system is not installed")
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import dltune.{module}"
    # -S: without the packages of this environment
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
