"""The house as docs/explanation/architecture.md draws it: a line imports only lines above it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dltune"


# the folders and files of each system, until they are one folder
SYSTEMS = {
    "lmdb": (
        *("io/lmdb", "io/reader", "io/follow", "io/report/experiments", "tensorflow/records"),
        *("planners/io", "documents/sections/io", "cli/io_report", "cli/lmdb"),
    ),
    "memory": ("memory", "planners/memory", "documents/sections/memory"),
    "parallelism": (
        *("parallelism", "jax", "planners/parallelism", "documents/sections/parallelism"),
        *("documents/operators", "documents/operator_times", "report/kinds/operators"),
        *("report/kinds/operator_times", "report/kinds/topology", "cli/rank_speeds"),
        *("networks/operators", "networks/folded", "networks/recurrent"),
    ),
    "ranks": (
        *("horovod", "planners/allreduce", "planners/buckets", "findings/ranks"),
        *("simulate/ranks", "documents/horovod", "documents/sections/allreduce"),
        *("documents/sections/buckets", "cli/horovod_report", "cli/horovod_live"),
        "planners/settings/space/ranks",
    ),
    "transfers": ("planners/transfers", "documents/sections/transfers"),
}


def drawn() -> list[str]:
    """Files and folders in the order of the drawing."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    (block,) = re.findall(r"^```\n(errors,.*?)^```$", text, re.M | re.S)
    heads = [re.split(r" {2,}", line)[0] for line in block.splitlines()]
    return [name.strip().rstrip("/") for head in heads for name in head.split(",")]


def part(path: str, names: list[str]) -> str | None:
    """The longest name of the drawing that this path (or dotted name) is in."""
    path = path.replace(".", "/")
    found = [name for name in names if path == name or path.startswith(f"{name}/")]
    return max(found, key=len, default=None)


def imported(source: Path) -> Iterator[str]:
    """What it imports of dltune, wherever in the file, without the package's own name."""
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
    rooms = {f"planners/{p.parent.name}" for p in PACKAGE.glob("planners/*/planner.py")}
    names = drawn()
    modules = {"errors", "visible", "tables", "words", "views", "extensions", "core"}
    assert there | rooms | modules == set(names)
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
    names = drawn()
    rooms = [name for name in names if name.startswith("planners/")]
    assert len(rooms) >= 4
    for source, path in SOURCES:
        mine = part(path, names)
        for name in imported(source):
            other = part(name, names)
            assert not (mine in rooms and other in rooms and other != mine), (path, name)


def test_core_imports_no_system_and_no_system_another() -> None:
    owners = {
        folder: system for system, own in SYSTEMS.items() for folder in (*own, f"systems/{system}")
    }
    folders = list(owners)
    assert all((PACKAGE / f).exists() or (PACKAGE / f"{f}.py").exists() for f in folders)
    crossing = []
    for source, path in SOURCES:
        mine = owners.get(part(path, folders) or "")
        for name in imported(source):
            other = owners.get(part(name, folders) or "")
            if other not in (None, mine) and path != "io":  # names the reader's public objects
                crossing.append(f"{path} imports {name}")
    assert crossing == []


@pytest.mark.parametrize("door", ["plan", "run", "show", "report"])
def test_what_uses_planners_names_none(door: str) -> None:
    """The commands that know planners through the registry alone, and what they stand on."""
    folder = PACKAGE / "planners"
    rooms = tuple(f"planners.{p.parent.name}" for p in folder.glob("*/planner.py"))
    sources = [PACKAGE / "cli" / f"{door}.py", *(PACKAGE / "run").glob("*.py")]
    sources += [*folder.glob("*.py"), PACKAGE / "report" / "kinds" / "plan.py"]
    for source in sources:
        assert not [name for name in imported(source) if name.startswith(rooms)], source


def test_frameworks_are_imported_in_their_adapters() -> None:
    for source, path in SOURCES:
        if path.startswith(("tensorflow/", "jax/")) or "/inject/" in path:
            continue
        for node in ast.walk(ast.parse(source.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            foreign = ("tensorflow", "keras", "jax")
            assert not [m for m in modules if m.split(".")[0] in foreign], path


def test_what_runs_inside_a_job_imports_nothing_of_dltune() -> None:
    inside = [*PACKAGE.glob("**/inject/*.py"), *PACKAGE.glob("frameworks/bootstrap/*.py")]
    inside.append(PACKAGE / "jax" / "gradients_rank.py")
    assert {one.parent.parent.name for one in inside} >= {"tensorflow", "jax", "frameworks"}
    for source in inside:
        assert list(imported(source)) == [], source
