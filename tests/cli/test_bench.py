"""`dltune bench` as a person meets it where no job runs: what is refused, and the table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.bench.step_times import summary
from dltune.cli.terminal import show_view
from dltune.report.kinds.bench import view
from dltune.schemas.bench import SCHEMA as BENCH_SCHEMA
from dltune.schemas.bench import Bench, Setting, Turn
from dltune.schemas.plan import SCHEMA, Plan, Prediction, Threads, Uniform
from dltune.schemas.profile import Framework
from dltune.system import topology
from dltune.views import Context


def show(bench: Bench) -> None:
    show_view(view(bench, Context()))


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def refused(done: subprocess.CompletedProcess[str], *told: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for part in told:
        assert part in done.stderr


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A uniform plan for this machine and no graph in particular."""
    machine = topology.local()
    predictions = tuple(
        Prediction(name, 1.0, 1.0, 1.0) for name in ("default", "recommended", "uniform 2x1")
    )
    section = Threads("uniform 2x1", Uniform(2, 1), False, False, 1e-5, (), predictions)
    made = Plan(
        SCHEMA,
        "2026",
        "0",
        "00",
        machine.fingerprint,
        machine.name,
        len(machine.cores),
        None,
        ("signature",),
        {"threads": section},
    )
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(made))
    return path


def test_wrong_use_is_told_before_anything_starts(plan: Path, tmp_path: Path) -> None:
    refused(dltune("--", "true"), "--plan")
    refused(dltune("--plan", plan), "the command of the job is missing", "add it after --")
    refused(dltune("--plan", tmp_path / "none.json", "--", "true"), "cannot read")
    refused(dltune("--plan", plan, "--against", "fast", "--", "true"), "no setting 'fast'")
    refused(
        dltune("--plan", plan, "--against", "2x1,2x1", "--", "true"), "--against names 2x1 twice"
    )
    refused(
        dltune("--plan", plan, "--against", ",", "--no-one-core", "--", "true"), "names no setting"
    )
    refused(dltune("--plan", plan, "--rounds", 0, "--", "true"), "--rounds")
    refused(dltune("--plan", plan, "--", "no-such-command"), "command not found: no-such-command")
    there = tmp_path.parent / f"{tmp_path.name}.json"
    there.touch()
    refused(dltune("--plan", plan, "-o", there, "--", "true"), f"{there} already exists")
    refused(dltune("--plan", plan, "-o", tmp_path, "--", "true"), "is a folder")
    both = tmp_path / "both.json"
    refused(dltune("--plan", plan, "-o", both, "--pyperf", both, "--", "true"), "the same file")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json"]


def test_a_plan_for_another_machine(plan: Path) -> None:
    made = msgspec.json.decode(plan.read_bytes(), type=Plan)
    plan.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, machine="elsewhere")))
    refused(dltune("--plan", plan, "--", "true"), "the plan was made for", "elsewhere")


def test_a_job_that_is_no_python(plan: Path, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    done = dltune("--plan", plan, "-o", output, "--", "true")
    refused(done, ": could not attach to the job")
    # of all jobs, which end at once, the one that was seen first
    assert re.search(r"under (default|recommended|uniform|plan|1core): ", done.stderr)
    assert not output.exists()


def test_a_job_that_fails_shows_its_last_words(plan: Path) -> None:
    done = dltune("--plan", plan, "--", "sh", "-c", "echo so long; exit 3")
    assert done.returncode == 3
    assert "so long" in done.stderr
    assert "(the job ended with exit code 3)" in done.stderr


def test_a_job_that_tells_nothing_is_ended(plan: Path, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    done = dltune(
        "--plan", plan, "--wait", 3, "--", "sh", "-c", f"echo $$ >> {mark}; exec sleep 600"
    )
    refused(done, "no message for 3 s", "could not attach to the job")
    for pid in mark.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def bench(**changes: object) -> Bench:
    machine = synthetic.machine(2)

    def setting(name: str, step: float, predicted: float | None, pair: tuple[int, int]) -> Setting:
        turns = tuple(Turn(r, (step, step, step), 2 * step, 40, 3) for r in range(6))
        mine = dict.fromkeys(range(6), step)
        reference = dict.fromkeys(range(6), 0.4) if name != "recommended" else {}
        one = dict.fromkeys(range(6), 0.6)
        made = summary(turns, mine, reference, one, 2)
        return Setting(name, *pair, None, predicted, turns, made)

    made = Bench(
        schema=BENCH_SCHEMA,
        created="2026",
        dltune="0",
        partial=None,
        command=("python", "train.py"),
        machine=machine,
        framework=Framework("tensorflow", "2.21.0", "", ""),
        plan="00",
        strategy="uniform 2x2",
        reference="recommended",
        rounds=6,
        settings=(
            setting("recommended", 0.4, 0.5, (2, 1)),
            setting("uniform", 0.32, 0.45, (2, 2)),
            setting("plan", 0.32, 0.45, (2, 2)),
            setting("1core", 0.6, None, (1, 1)),
        ),
    )
    return msgspec.structs.replace(made, **changes)


def test_the_table_tells_how_well_transfers_overlapped(capsys: pytest.CaptureFixture[str]) -> None:
    made = bench(strategy="uniform 2x2, transfers tac")
    efficiencies = {"recommended": (0.1, 0.2, 0.6), "plan": (0.9, 0.7, 0.8)}
    settings = tuple(
        msgspec.structs.replace(
            one,
            turns=tuple(
                msgspec.structs.replace(turn, scheduling=efficiencies.get(one.name, ()))
                for turn in one.turns
            ),
        )
        for one in made.settings
    )
    show(msgspec.structs.replace(made, settings=settings))
    told = capsys.readouterr().out
    last = {line.split()[0]: line.split()[-1] for line in told.splitlines()[2:7]}
    assert last == {"setting": "E", "recommended": "0.20", "uniform": "-", "plan": "0.80",
                    "1core": "-"}  # fmt: skip
    assert "the plan is uniform 2x2, transfers tac\n" in told, "which uniform is not the same as"


def test_the_table_has_measured_beside_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    show(bench())
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["python train.py", "6 rounds; threads are intra-op x inter-op"]
    cells = {line.split()[0]: line.split() for line in lines[3:7]}
    assert cells["recommended"][1:5] == ["2x1", "400.00", "0.0%", "1"]
    assert " ".join(cells["plan"]) == "plan 2x2 320.00 0.0% 0.800 0.800 to 0.800 450.00 0.900"
    assert " ".join(lines[13].split()) == "plan 0.938 0.64 40 3"
    assert " ".join(lines[14].split()) == "1core 0.500 1.2 40 3"
    assert "the same setting as uniform: differences between them are noise" in lines[-2]
    assert lines[-1] == "plan: 1.25x as fast as recommended (97% interval 1.25 to 1.25)"


def test_without_one_core_nothing_is_said_of_efficiency(capsys: pytest.CaptureFixture[str]) -> None:
    made = bench()
    kept = tuple(
        msgspec.structs.replace(s, summary=msgspec.structs.replace(s.summary, efficiency=None))
        for s in made.settings
        if s.summary and s.name != "1core"
    )
    show(msgspec.structs.replace(made, settings=kept))
    text = capsys.readouterr().out
    assert "efficiency" not in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "setting CPU s voluntary involuntary" in lines
    assert "plan 0.64 40 3" in lines


def test_a_difference_by_page_faults_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    made = bench()
    faults = {"recommended": 10_000.0, "plan": 50.0, "1core": 10_100.0}

    def with_faults(turns: tuple[Turn, ...], count: float) -> tuple[Turn, ...]:
        return tuple(msgspec.structs.replace(turn, faults=count) for turn in turns)

    settings = tuple(
        msgspec.structs.replace(one, turns=with_faults(one.turns, faults.get(one.name, 10_000.0)))
        for one in made.settings
    )
    show(msgspec.structs.replace(made, settings=settings))
    text = capsys.readouterr().out
    assert text.count("page faults per step") == 1
    assert "plan has 9,950 fewer page faults per step than recommended; they take" in text
    assert "at least 5 ms" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "plan 0.938 0.64 40 3 50" in lines


def test_a_partial_comparison_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(bench(partial="interrupted in round 3 of 6"))
    assert capsys.readouterr().out.startswith("this comparison is partial: interrupted in round 3")


def test_the_documentation_names_every_option() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "reference" / "commands" / "bench.md").read_text()
    shown = subprocess.run(
        [sys.executable, "-m", "dltune", "bench", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    ).stdout
    options = {word.strip(",/") for word in shown.split() if word.startswith("--") and word != "--"}
    missing = {option for option in options if option.split("/")[0] not in docs} - {"--help"}
    assert not missing
