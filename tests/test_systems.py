"""Each of dltune's systems can be deleted: the rest imports, builds, and passes its tests."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import owners
import pytest
import separated

import dltune
from dltune import extensions
from dltune.core import EXTENSION
from dltune.findings.rule import rules

TESTS = Path(__file__).parent
PACKAGE = Path(dltune.__file__).parent
INSTALLED = sorted(owners.installed())
# the five, and all of them; in a copy without a system those that are left
DELETIONS = [*([name] for name in INSTALLED), *([INSTALLED] if len(INSTALLED) > 1 else [])]
# a document of tests/golden for each kind
DOCUMENTS = {
    "dltune.horovod": "horovod.json.gz",
    "dltune.operators": "network.json",
    "dltune.operator-times": "times.json",
    "dltune.topology": "cluster.json",
}
# fast, and near to what core asks systems for
CHOSEN = (
    *("tests/test_imports.py", "tests/findings", "tests/golden", "tests/cli/test_show.py"),
    *("tests/plan/test_plan.py", "tests/plan/run", "tests/plan/settings/test_space.py"),
    *("tests/report/test_kinds.py", "tests/report/test_perfetto.py"),
    *("tests/systems/test_*.py", "tests/systems/*/test_show.py"),
    "tests/systems/**/test_section.py",
)
# transcripts that take longest; the others have commands on documents of all systems
SLOW = tuple(
    f"tests/golden/test_transcripts.py::test_a_transcript_is_as_before[{name}"
    for name in ("lmdb", "model", "plan_")
)
# names of systems that are words of the field, too
WORDS = {"buckets", "horovod", "io", "lmdb", "memory", "ranks", "transfers"}


@pytest.mark.parametrize("system", INSTALLED)
def test_what_a_system_owns_is_what_it_registers(system: str) -> None:
    (extension,) = (each for each in extensions.own() if each.name == system)
    owned = owners.SYSTEMS[system]
    assert sorted(owned.commands) == sorted(extension.commands)
    assert sorted(owned.planners) == sorted(extension.planners)
    assert sorted(owned.documents) == sorted(extension.documents)


def imported(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_test_of_core_needs_a_system_and_no_test_of_a_system_another() -> None:
    helpers = {
        source.stem: source.relative_to(TESTS / "systems").parts[0]
        for source in TESTS.glob("systems/*/**/*.py")
        if not source.stem.startswith("test_") and source.stem != "conftest"
    }
    helpers |= {source.stem: "" for source in TESTS.glob("systems/*.py")}
    crossing = []
    for source in sorted(TESTS.rglob("*.py")):
        parts = source.relative_to(TESTS).parts
        if parts[0] == "systems" and len(parts) == 2:
            continue  # of all systems that are installed
        own = parts[1] if parts[0] == "systems" else None
        for name in imported(source):
            of_dltune = name.startswith("dltune.systems.")
            top = name.partition(".")[0]
            other = name.split(".")[2] if of_dltune else helpers.get(top, own)
            if other != own:
                crossing.append(f"{source.relative_to(TESTS)} imports {name}")
    assert crossing == []


def test_core_names_nothing_of_a_system() -> None:
    rules_of_systems = (r for r in rules() if r.find.__module__.startswith("dltune.systems."))
    names = {rule.name for rule in rules_of_systems}
    for system in extensions.own():
        if system.name != "core":
            names |= {*system.commands, *system.planners, *system.documents}
            names |= {extensions.load(setting).name for setting in system.settings}
    naming = []
    for source in sorted(PACKAGE.rglob("*.py")):
        path = source.relative_to(PACKAGE)
        # plans of the first schema have sections for fields
        if path.parts[0] == "systems" or path == Path("schemas", "plan.py"):
            continue
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Constant) and node.value in names - WORDS:
                naming.append(f"{path}:{node.lineno}: {node.value!r}")
    assert naming == []


@pytest.fixture(params=DELETIONS, ids="+".join)
def deleted(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[str]]:
    """A copy of the tree without some systems, and their names."""
    return separated.copied(tmp_path / "copy", request.param), request.param


def commands(names: list[str]) -> dict[str, str]:
    """Return what is to be refused without these systems, by the name that the refusal has."""
    owned = [owners.SYSTEMS[name] for name in names]
    sections = [section for each in owned for section in each.planners]
    found: dict[str, str] = {}
    for section in sections:
        plan, where = f"{section}-plan.json", f"sections.{section}: the system"
        found[f"run --plan {plan} -- true"] = f"planner '{section}' is not installed"
        found[f"plan threads small.json --into {plan}"] = where
        found[f"report {plan} -o none.html"] = where
        found[f"plan {section} small.json -o none.json"] = f"'{section}' is neither a planner"
    for kind in (kind for each in owned for kind in each.documents):
        found[f"report {DOCUMENTS[kind]} -o none.html"] = "install the system or package that reads"
        found[f"show {DOCUMENTS[kind]} --csv"] = "install the system or package that reads"
    for command in (command for each in owned for command in each.commands):
        found[command] = f"there is no command '{command}'"
    if "parallelism" in names:
        found["doctor --ranks 2"] = "the system or package that measures ranks is not installed"
    return found


@pytest.mark.timeout(900)
def test_the_rest_imports_builds_and_refuses_what_is_missing(
    deleted: tuple[Path, list[str]],
) -> None:
    folder, names = deleted
    refused = commands(names)
    sections = [section for name in names for section in owners.SYSTEMS[name].planners]
    documents = folder / "tests" / "golden" / "documents"
    plan = json.loads((documents / "tf-plan.json").read_bytes())
    for section in sections:
        whole = {**plan, "sections": {**plan["sections"], section: {}}}
        (documents / f"{section}-plan.json").write_text(json.dumps(whole))
    shown = {section: f"show {section}-plan.json" for section in sections}
    wanted = ["--help", "plan --help", *refused, *shown.values()]
    done = separated.python(folder, folder / "tests" / "separated.py", *wanted, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["package"] == str(folder / "dltune")
    assert found["failed"] == {}
    assert found["foreign"] == []
    ran = found["ran"]
    left = [owners.SYSTEMS[name] for name in INSTALLED if name not in names]
    kept = {command for each in left for command in each.commands}
    assert listed(ran["--help"]) == {*EXTENSION.commands, *kept}
    kept = {planner for each in left for planner in each.planners}
    assert listed(ran["plan --help"].partition("Planners:")[2]) == {*EXTENSION.planners, *kept}
    for command, words in refused.items():
        assert words in " ".join(ran[command].replace("\n! ", " ").split()), ran[command]
        assert ran[command].endswith("[exit 2]\n"), ran[command]
    for section, command in shown.items():
        told = f"skipping section '{section}' of the plan: the system or package with"
        assert told in ran[command], ran[command]
        assert "threads: The plan is uniform 2x2" in ran[command]


def listed(text: str) -> set[str]:
    """Return the names in a help text's lists of commands."""
    return set(re.findall(r"^  ([a-z][\w-]*)  +[A-Z]", text, re.M))


@pytest.mark.timeout(1800)
def test_the_rest_passes_its_tests(deleted: tuple[Path, list[str]]) -> None:
    folder, _ = deleted
    files = [str(path.relative_to(folder)) for name in CHOSEN for path in folder.glob(name)]
    alone = "not tensorflow and not jax and not proof"
    left_out = [f"--deselect={name}" for name in SLOW]
    require_passed(folder, "-m", alone, *left_out, *files, timeout=1500)


@pytest.mark.proof
@pytest.mark.timeout(6 * 3600)
def test_the_rest_passes_all_its_tests(deleted: tuple[Path, list[str]]) -> None:
    """Those that start real jobs, too."""
    folder, _ = deleted
    for environment in separated.ROOT.glob(".venv*"):
        (folder / environment.name).symlink_to(environment)
    parallel = ("-n", "3", "--dist", "loadfile")
    require_passed(folder, *parallel, "--ignore", "tests/test_systems.py", timeout=5 * 3600)


def require_passed(folder: Path, *arguments: str, timeout: float) -> None:
    """Require that tests of a copy pass, and that they are those of the copy's code."""
    code = (
        "import sys, pytest; code = pytest.main(sys.argv[1:]); "
        "import dltune; print(dltune.__file__); sys.exit(code)"
    )
    options = ("-q", "-p", "no:cacheprovider")
    done = separated.python(folder, "-c", code, *options, *arguments, timeout=timeout)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == str(folder / "dltune" / "__init__.py")
