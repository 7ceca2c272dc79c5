"""`dltune diagnose`, as people call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from observations import observation, python
from synthetic import machine, network

from dltune.findings.diagnosis import diagnose
from dltune.findings.evidence import Evidence
from dltune.plan.plan import load_plan
from dltune.schemas import diagnosis as documents
from dltune.schemas.diagnosis import Finding
from dltune.schemas.settings import Choice, SettingsPlan

# at a pace of its sleeps, beside which all else is little; says when it has begun
GROWS = (
    "kept = []\nimport time\nprint('ready', flush=True)\n"
    "while True: kept.append(bytearray(1 << 20)); time.sleep(0.1)"
)


def dltune(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "diagnose", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,  # type: ignore[call-overload]
    )


def written(path: Path, document: msgspec.Struct) -> Path:
    path.write_bytes(msgspec.json.encode(document))
    return path


@pytest.fixture
def looped(tmp_path) -> Path:
    """What was seen of a job that spends half of its time in Keras' loop."""
    seen = Evidence(observation=observation(python=python(fit=0.5)))
    return written(tmp_path / "diagnosis.json", diagnose(seen, "a job", 20.0, None, None))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "diagnose needs exactly one of: a command, --pid, files"),
        (
            ("--pid", os.getpid(), "--", "true"),
            "diagnose needs exactly one of: a command, --pid, files",
        ),
        (("--pid", 2**22 + 1), "there is no process"),
        (("--budget", "soon", "--", "true"), "is not a duration"),
        (("nothing.json",), "cannot read nothing.json"),
        (("--verbose", "nothing.json"), "need a job that dltune starts"),
        (("--keep-running", "--pid", os.getpid()), "need a job that dltune starts"),
    ],
)
def test_wrong_use(arguments, words):
    done = dltune(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_that_fails_has_its_own_code():
    done = dltune("--", sys.executable, "-c", "raise SystemExit(7)")
    assert done.returncode == 7
    assert "the job neither imported TensorFlow" in done.stderr


def test_what_was_measured_before(tmp_path, looped):
    page = tmp_path / "page.html"
    done = dltune("-o", page, "--plan", tmp_path / "plan.json", looped)
    assert done.returncode == 0, done.stderr
    assert (
        "1. Keras' training loop takes 50% of the time, because the steps are short" in done.stdout
    )
    assert "Cost: 50% of the time" in done.stdout
    assert "Expected: 1.33x to 2.00x as fast (measured in this job)" in done.stdout
    assert done.stdout.endswith(f"\nNext: dltune run --plan {tmp_path / 'plan.json'} -- CMD\n")
    shown = page.read_text()
    assert "compile(steps_per_execution=64)" in shown
    assert "in Keras&#39; training loop: 50%" in shown.replace("&#x27;", "&#39;")
    assert "generator object" not in shown
    section = load_plan(tmp_path / "plan.json").of(SettingsPlan)
    assert section is not None
    assert section.chosen == (Choice("steps_per_execution", "64"),)
    assert section.overrides


def test_what_a_diagnosis_has_told_is_told_again(tmp_path):
    """What it rests on is in no file."""
    finding = Finding(
        cause="float64",
        title="ops in float64",
        evidence="",
        fix="float32",
        share=0.4,
        confidence="modelled",
    )
    seen = Evidence(observation=observation(python=python(fit=0.5)))
    told = msgspec.structs.replace(
        diagnose(seen, "a job", 20.0, "nothing repeats", None, machine(4)), findings=(finding,)
    )
    kept = written(tmp_path / "diagnosis.json", told)
    done = dltune("--json", kept)
    assert done.returncode == 0, done.stderr
    again = msgspec.json.decode(done.stdout, type=documents.Diagnosis)
    assert again == told
    both = dltune(kept, written(tmp_path / "profile.json", network(machine(2))))
    assert both.returncode == 2
    assert "is a diagnosis, which cannot be combined with other files" in both.stderr


def test_two_files_of_a_kind(tmp_path):
    files = [written(tmp_path / f"{name}.json", network(machine(2))) for name in "ab"]
    done = dltune(*files)
    assert done.returncode == 2
    assert "are both dltune.profile documents" in done.stderr


def test_a_plan_is_for_the_machine_that_was_seen(tmp_path, looped):
    told = documents.load(looped)
    written(looped, msgspec.structs.replace(told, machine=machine(4)))
    plan = tmp_path / "plan.json"
    assert dltune("--plan", plan, looped).returncode == 0
    assert load_plan(plan).machine == machine(4).fingerprint
    healthy = written(tmp_path / "profile.json", network(machine(2)))
    done = dltune("--plan", plan, "--overwrite", healthy)
    assert done.returncode == 0, done.stderr
    assert f"{plan} is unchanged" in done.stderr


def test_without_a_look_at_python_nothing_is_healthy():
    blind = diagnose(Evidence(observation=observation(python=None)), "a job", 20.0, None, None)
    assert (blind.findings, blind.healthy) == ((), False)
    assert "Python: no sample of the main thread" in blind.unseen
    assert diagnose(Evidence(observation=observation()), "a job", 20.0, None, None).healthy


def test_a_command_that_cannot_be_started_is_told_before_anything_is_measured(tmp_path):
    done = dltune("--", "no-such-command", env={**os.environ, "DLTUNE_CACHE": str(tmp_path)})
    assert done.returncode == 2
    assert "command not found: no-such-command" in done.stderr
    assert "peak performance" not in done.stderr


def test_no_plan_where_nothing_can_be_applied(tmp_path):
    healthy = network(machine(2))
    plan = tmp_path / "plan.json"
    done = dltune("--plan", plan, "--json", written(tmp_path / "profile.json", healthy))
    assert done.returncode == 0, done.stderr
    assert "no plan written: dltune can apply none of the fixes" in done.stderr
    assert not plan.exists()
    found = json.loads(done.stdout)
    assert found["step"]["limit"] > 0


def test_a_process_that_runs(tmp_path):
    kept = tmp_path / "diagnosis.json"
    # a shell that waits for what works
    started = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, GROWS]
    with subprocess.Popen(started, stdout=subprocess.PIPE, start_new_session=True) as job:
        try:
            assert job.stdout
            assert job.stdout.readline() == b"ready\n"  # it has worked more than its shell
            done = dltune("--pid", job.pid, "--budget", "19s", "-o", kept)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
    assert done.returncode == 0, done.stderr
    found = documents.load(kept)
    assert not found.healthy
    assert [one.cause for one in found.findings if one.cause == "growing-memory"]
    assert "--pid cannot measure steps" in (found.no_step or "")


def test_an_interrupt_leaves_what_was_seen(tmp_path):
    kept = tmp_path / "diagnosis.json"
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as job,
        subprocess.Popen(
            [
                *(sys.executable, "-m", "dltune", "diagnose", "--pid", str(job.pid)),
                *("-o", str(kept)),
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as looks,
    ):
        try:
            assert looks.stderr
            assert "observing pid" in looks.stderr.readline()
            time.sleep(1.0)
            looks.send_signal(signal.SIGINT)
            looks.communicate(timeout=240)
        finally:
            job.kill()
    assert looks.returncode == 128 + signal.SIGINT
    assert documents.load(kept).partial == "stopped by SIGINT"


def test_costs_that_overlap_are_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    from dltune.cli.terminal import show_view
    from dltune.report.kinds.diagnosis import view
    from dltune.views import Context

    nothing = diagnose(Evidence(), "job", 1.0, None, None)

    def finding(share: float) -> Finding:
        return Finding(cause="slow", title="slow", evidence="figures", fix="do it", share=share)

    made = msgspec.structs.replace(nothing, findings=(finding(0.6), finding(0.5)))
    show_view(view(made, Context()))
    assert "Costs overlap" in capsys.readouterr().out
    made = msgspec.structs.replace(nothing, findings=(finding(0.6), finding(0.3)))
    show_view(view(made, Context()))
    assert "Costs overlap" not in capsys.readouterr().out
