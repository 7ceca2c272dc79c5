"""A planner that another package brings, in an environment of its own: every door of dltune."""

from __future__ import annotations

import json
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.schemas.plan import stored
from dltune.system import topology

PACKAGE = Path(__file__).parent / "foreign"
ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment that has all of this one, and the package."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "here.pth").write_text("\n".join([str(ROOT), *site.getsitepackages()]))
    source = shutil.copytree(PACKAGE, folder / "source")  # a build leaves files beside it
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps"),
            *("--no-build-isolation", "--no-index", "-q", source),
        ],
        check=True,
    )
    return python


@pytest.fixture
def dltune(python: Path) -> Run:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", "dltune", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def plan(dltune: Run, tmp_path: Path) -> Path:
    """With its section beside one on threads."""
    profile = tmp_path / "profile.json"
    network = synthetic.network(topology.local(), layers=2, span=0.02)
    profile.write_bytes(msgspec.json.encode(network))
    path = tmp_path / "plan.json"
    assert dltune("plan", profile, "--strategy", "uniform").returncode == 0
    done = dltune("plan", "waiting", "--policy", "passive", "--into", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "how OpenMP's threads wait\npolicy\npassive\n"
    assert done.stderr == f"plan written to {path}: passive\n"
    return path


def test_it_stands_among_the_planners_and_a_broken_one_is_told(dltune: Run) -> None:
    done = dltune("plan", "--help")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "waiting How OpenMP's threads wait." in told
    assert "stale the extension 'stale' (dltune_waiting_of_old:EXTENSION) cannot be loaded" in told
    assert "threads Choose threads and cores for each op," in told
    overview = " ".join(dltune("--help").stdout.split())
    assert "waiting Print how threads can wait." in overview
    assert "stale the extension 'stale'" in overview
    assert dltune("waiting").stdout == "active\npassive\n"
    own = dltune("plan", "waiting", "--help").stdout
    for part in ("sleep leave their cores", "--policy", "--into", "--emit", "--json"):
        assert part in own
    broken = dltune("plan", "stale")
    assert broken.returncode == 2
    assert "No module named 'dltune_waiting_of_old'" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_its_section_is_written_merged_and_printed(dltune: Run, plan: Path) -> None:
    made = stored(plan)
    assert list(made.sections) == ["threads", "waiting"]
    assert made.sections["waiting"] == {"policy": "passive"}
    assert made.signatures == ("signature-train",)
    out = plan.with_name("other.json")
    assert json.loads(dltune("plan", "waiting", "--json", "-o", out).stdout)["policy"] == "passive"
    shell = dltune("plan", "waiting", "--emit", "env", "-o", out, "--overwrite").stdout
    assert shell == "export OMP_WAIT_POLICY=passive\n"
    elsewhere = plan.with_name("elsewhere.json")
    moved = msgspec.structs.replace(made, machine="another", cores=64)
    elsewhere.write_bytes(msgspec.json.encode(moved))
    done = dltune("plan", "waiting", "--into", elsewhere)
    assert done.returncode == 2
    assert "with 64 cores, but the new section is for" in done.stderr


def test_it_is_enforced(dltune: Run, tmp_path: Path) -> None:
    path, outcome = tmp_path / "plan.json", tmp_path / "outcome.json"
    assert dltune("plan", "waiting", "-o", path).returncode == 0
    would = dltune("run", "--plan", path, "--dry-run")
    assert would.stdout == "OpenMP's threads wait: passive\n"
    job = ["--", sys.executable, "-c", "import os; print(os.environ['OMP_WAIT_POLICY'])"]
    done = dltune("run", "--plan", path, "--json", outcome, *job)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "passive\n"
    assert done.stderr == "dltune: waited: passive\n"
    assert json.loads(outcome.read_bytes())["sections"] == {"waiting": {"policy": "passive"}}


def test_apply_refuses_it_with_its_own_reason(python: Path, plan: Path) -> None:
    code = f"import dltune; dltune.apply({str(plan)!r})"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300)
    assert "UsageError: OpenMP reads its policy when it is loaded" in done.stderr


def test_it_stands_on_the_page_and_on_the_terminal(dltune: Run, plan: Path) -> None:
    page = plan.with_name("page.html")
    done = dltune("report", plan, "-o", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "planned to wait passively." in text
    assert "How OpenMP's threads wait" in text.replace("&#39;", "'")
    shown = dltune("show", plan)
    assert shown.returncode == 0, shown.stderr
    assert "how OpenMP's threads wait\npolicy\npassive\n" in shown.stdout


def test_its_kind_of_document_is_on_the_page_and_a_table(dltune: Run, tmp_path: Path) -> None:
    path, page = tmp_path / "waits.json", tmp_path / "page.html"
    waits = {"schema": "waiting.waits/1", "threads": [{"name": "main", "seconds": 0.25}]}
    path.write_text(json.dumps(waits))
    done = dltune("report", path, "-o", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    for part in ("A thread waits.", "Waits waits.json", "Waits of threads", "Only a page has this"):
        assert part in text
    assert dltune("show", path, "--csv").stdout == "threads,name,seconds\n0,main,0.25\n"
    path.write_text(json.dumps({**waits, "threads": []}))
    for command in (["report", path, "-o", page, "--overwrite"], ["show", path, "--csv"]):
        done = dltune(*command)
        assert done.returncode == 2
        assert "threads must not be empty" in done.stderr


def test_what_cannot_be_in_its_section_is_told(dltune: Run, plan: Path) -> None:
    broken = json.loads(plan.read_bytes())
    broken["sections"]["waiting"]["policy"] = "maybe"
    plan.write_text(json.dumps(broken))
    done = dltune("run", "--plan", plan, "--", "true")
    assert done.returncode == 2
    assert "waiting.policy must be one of ('active', 'passive'), got 'maybe'" in done.stderr


def test_its_rule_reads_its_document(dltune: Run, tmp_path: Path) -> None:
    waits = tmp_path / "waits.json"
    thread = {"name": "a reader", "seconds": 1.5}
    waits.write_text(json.dumps({"schema": "waiting.waits/1", "threads": [thread]}))
    done = dltune("diagnose", waits)
    assert done.returncode == 0, done.stderr
    assert "A reader waits\n   For 1.50 s." in done.stdout


def test_its_probe_observes_a_running_process(dltune: Run) -> None:
    with subprocess.Popen(["sleep", "3600"]) as job:
        try:
            done = dltune("diagnose", "--budget", "2s", "--pid", job.pid)
        finally:
            job.kill()
    assert done.returncode == 0, done.stderr
    assert f"Thread of {job.pid} waits" in done.stdout


def test_its_setting_can_be_searched(dltune: Run) -> None:
    done = dltune("tune", "--only", "nicenes", "--", "true")
    assert done.returncode == 2
    assert "use niceness" in done.stderr


def test_without_the_package_the_section_is_named_and_refused_or_left_out(plan: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dltune", "run", "--plan", plan, *arguments]
        return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300)

    done = run("--dry-run")
    assert done.returncode == 2
    assert (
        "sections.waiting: the system or package with the planner 'waiting' is not installed"
        in done.stderr
    )
    assert "install it, or remove this section from the plan" in done.stderr
    partial = run("--partial", "--dry-run")
    assert partial.returncode == 0, partial.stderr
    assert "skipping section 'waiting'" in partial.stderr
    assert partial.stdout.startswith("uniform")
