"""`dltune tune` as a person meets it where no job runs: what is refused, and the tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from plan_sections import UNIFORM

from dltune.cli import tune_display
from dltune.cli.terminal import show_view
from dltune.cli.tune_display import LiveView
from dltune.plan.duration import duration_in_words
from dltune.plan.plan import new_plan
from dltune.schemas import bench
from dltune.schemas.bench import Trial, Tune
from dltune.schemas.profile import Framework
from dltune.schemas.settings import Choice, Effect, Measured, SettingsPlan, Untried
from dltune.system import topology
from dltune.tune import result
from dltune.tune.search import Progress
from dltune.views import Context

JOB = ("--", sys.executable, "-c", "raise SystemExit(7)")
FUSED = (Choice("batch_norm", "fused"),)


def dltune(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "tune", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
    )


def refused(done: subprocess.CompletedProcess[str], *told: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for part in told:
        assert part in done.stderr


def test_no_command(tmp_path: Path) -> None:
    refused(dltune(tmp_path), "no command to tune", "dltune tune -- python train.py")


def test_a_command_that_there_is_not(tmp_path: Path) -> None:
    refused(dltune(tmp_path, "--", "no-such-program"), "command not found: no-such-program")
    assert list(tmp_path.iterdir()) == []


def test_unknown_settings(tmp_path: Path) -> None:
    refused(dltune(tmp_path, "--only", "treads", *JOB), "no setting 'treads'", "use threads")
    refused(dltune(tmp_path, "--without", "alocator", *JOB), "no setting 'alocator'", "allocator")


def test_nothing_left_to_try(tmp_path: Path) -> None:
    done = dltune(tmp_path, "--only", "precision", *JOB)
    refused(done, "no setting can be tried", "precision: it is lossy", "--allow")


@pytest.mark.parametrize("budget", ["0", "soon", "-3m", "10d"])
def test_a_budget_that_is_none(tmp_path: Path, budget: str) -> None:
    refused(dltune(tmp_path, "--budget", budget, *JOB), "not a duration above 0", "10m")


@pytest.mark.parametrize(("seconds", "told"), [(90, "90s"), (600, "10m"), (630, "10.5m")])
def test_durations_are_written_as_they_are_read(seconds: float, told: str) -> None:
    assert duration_in_words(seconds) == told


def test_two_outputs(tmp_path: Path) -> None:
    done = dltune(tmp_path, "-o", "a.json", "--into", "b.json", *JOB)
    refused(done, "-o and --into", "one of them")


def test_an_output_that_exists(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("mine")
    refused(dltune(tmp_path, *JOB), "plan.json already exists", "--overwrite")
    assert (tmp_path / "plan.json").read_text() == "mine"


def test_into_a_plan_for_another_machine(tmp_path: Path) -> None:
    machine = msgspec.structs.replace(topology.local(), name="another")
    plan = msgspec.structs.replace(new_plan(machine), machine="0" * 16)
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
    done = dltune(tmp_path, "--into", "plan.json", *JOB)
    refused(done, "the plan was made for", "of another")


def test_a_profile_that_there_is_not(tmp_path: Path) -> None:
    refused(dltune(tmp_path, "--profile", "profile.json", *JOB), "cannot read profile.json")


def state(folder: Path, **changes: object) -> Path:
    made = Tune(
        schema=bench.TUNE_SCHEMA,
        created="2026",
        dltune="0",
        command=JOB[1:],
        machine=topology.local().fingerprint,
        framework=Framework("tensorflow", "2.21.0", "", ""),
        options=FUSED,
        spent=30.0,
        trials=(Trial(FUSED, (), "helps", (0.9,) * 12),),
    )
    path = folder / "plan.tune.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, **changes)))
    return path


def test_nothing_to_take_up(tmp_path: Path) -> None:
    refused(dltune(tmp_path, "--resume", *JOB), "no search to continue", "plan.tune.json")


def test_an_unfinished_search_is_not_written_over(tmp_path: Path) -> None:
    path = state(tmp_path)
    before = path.read_bytes()
    refused(dltune(tmp_path, "--only", "batch_norm", *JOB), "plan.tune.json", "--resume")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"command": ("python", "other.py")}, "another job: python other.py"),
        ({"machine": "0123"}, "another machine: 0123"),
        ({"options": (Choice("threads", "2x1"),)}, "other candidates: threads=2x1"),
    ],
)
def test_the_state_of_another_search(tmp_path: Path, changes: dict[str, object], told: str) -> None:
    state(tmp_path, **changes)
    refused(dltune(tmp_path, "--resume", "--only", "batch_norm", *JOB), told, "--resume")


def test_a_plan_with_more_than_settings_is_not_written_over_by_going_on(tmp_path: Path) -> None:
    state(tmp_path)
    sections = {"settings": SECTION, "threads": UNIFORM}
    plan = new_plan(topology.local(), signatures=("signature",), sections=sections)
    (tmp_path / "plan.json").write_bytes(before := msgspec.json.encode(plan))
    done = dltune(tmp_path, "--resume", "--only", "batch_norm", *JOB)
    refused(done, "plan.json has other sections than settings: threads", "--into plan.json")
    assert (tmp_path / "plan.json").read_bytes() == before


def test_plans_of_like_names_have_states_of_their_own(tmp_path: Path) -> None:
    names = ("bert.v1.json", "bert.v2.json", "bert.tune.json", "bert.json.gz", "bert")
    states = {name: result.beside(tmp_path / name) for name in names}
    assert len({states[name] for name in names[:3]}) == 3
    assert all(state != tmp_path / name for name, state in states.items())


def test_a_budget_that_is_spent_already(tmp_path: Path) -> None:
    state(tmp_path)
    done = dltune(tmp_path, "--resume", "--only", "batch_norm", "--budget", "30s", *JOB)
    refused(done, "has already used 30s", "--budget")


def test_a_damaged_state(tmp_path: Path) -> None:
    state(tmp_path, trials=(Trial(FUSED, (), "helps", (-1.0,)),))
    done = dltune(tmp_path, "--resume", "--only", "batch_norm", *JOB)
    refused(
        done,
        "plan.tune.json is invalid",
        "trials[0].ratios[0] must be finite and above 0, got -1.0",
    )


def test_a_job_that_fails_is_told_with_its_exit_code(tmp_path: Path) -> None:
    done = dltune(tmp_path, "--only", "batch_norm", *JOB)
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "plan.json").exists()


SECTION = SettingsPlan(
    command=("python", "train.py"),
    chosen=FUSED,
    kind="rounding",
    whole=Measured(0.8, 0.78, 0.82, 0.99, 12),
    recommended=Measured(0.82, 0.8, 0.84, 0.99, 12),
    effects=(
        Effect((Choice("xla", "auto"),), (), "rounding", "failed", None, "exit code 134"),
        Effect(FUSED, (), "rounding", "helps", Measured(0.8, 0.77, 0.83, 0.995, 12), ""),
        Effect(
            (Choice("threads", "2x1"),),
            FUSED,
            "rounding",
            "no difference seen",
            Measured(1.001, None, None, 0.995, 5),
            "a gain of 1.5% is unlikely",
        ),
    ),
    untried=(Untried("precision", None, "it is lossy; --allow lossy would try it"),),
    seconds=300.0,
    partial=None,
)


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    show_view(tune_display.view(SECTION, Context()))
    told = capsys.readouterr().out
    assert told.index("batch_norm=fused") < told.index("threads=2x1") < told.index("xla=auto")
    assert "0.770 to 0.830" in told
    assert "precision: it is lossy" in told
    assert "chosen: batch_norm=fused (rounding)" in told
    assert "1.25x as fast (time ratio 0.800, 99 % interval 0.780 to 0.820, 12 rounds)" in told
    assert "1.22x as fast" in told


def test_a_result_without_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    section = msgspec.structs.replace(SECTION, chosen=(), whole=None, partial="interrupted")
    show_view(tune_display.view(section, Context()))
    told = capsys.readouterr().out
    assert "incomplete result: interrupted" in told
    assert "chosen: the job as found" in told


def test_what_explain_adds() -> None:
    trials = [Trial(FUSED, (), "helps", (0.8, 0.81))]
    told = tune_display.explain(SECTION, trials)
    assert any(line.startswith("batch_norm (rounding): ") for line in told)
    assert any("[0.800 0.810]" in line for line in told)
    assert any("precision was not tried: it is lossy" in line for line in told)


def test_what_a_start_waits_for_is_told_while_it_does() -> None:
    view = LiveView()
    refreshed = []
    view.refresh = lambda: refreshed.append(view.summary().split("; ")[0])
    view.progress(Progress("starting the job as found", (), {}, 60.0))
    for what in ("", "building the plugin", "", ""):
        view.waits_for(what)
    view.waits_for("building the plugin")
    view.progress(Progress("comparing with the job as found", (), {}, 50.0))
    assert refreshed == [
        "starting the job as found",
        "building the plugin",
        "starting the job as found",
        "building the plugin",
        "comparing with the job as found",
    ]
