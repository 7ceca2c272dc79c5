"""`dltune gate` as a person meets it: outputs, exit codes, and every way to use it wrongly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from repository import git

from dltune.gate import verdicts
from dltune.schemas import gate as doc

# decided in a few rounds: the budget is never spent, however slow the machine is
QUICK = "budget = 400\nconfidence = 0.5\nmetrics.page_faults = { ratio = 1.5 }\n"
TOUCH = "x = bytearray(20000 * 4096)\nfor i in range(20000): x[i * 4096] = 1\n"


def commit(project: Path, message: str, **files: str) -> None:
    for name, content in files.items():
        (project / name.replace("_py", ".py").replace("_toml", ".toml")).write_text(content)
    git(project, "add", ".")
    git(project, "commit", "-qm", message)


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Under git: at `base` job.py does nothing, at HEAD it touches much memory."""
    top = tmp_path / "project"
    top.mkdir()
    git(top, "init", "-q", "-b", "main")
    commit(top, "base", job_py="pass\n", gate_toml=QUICK)
    git(top, "branch", "base")
    commit(top, "head", job_py=TOUCH)
    return top


def gate(project: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """With its temporary files beside the project, so that what stays is seen."""
    return subprocess.run(
        [sys.executable, "-m", "dltune", "gate", *map(str, arguments)],
        cwd=project,
        env={**os.environ, "TMPDIR": str(project.parent / "temporary")},
        capture_output=True,
        text=True,
        timeout=500,
    )


def nothing_left(project: Path, *outputs: str) -> None:
    assert not list((project.parent / "temporary").iterdir())
    assert git(project, "worktree", "list").count("\n") == 1
    assert not [name for name in outputs if (project / name).exists()]
    assert not [p.name for p in project.iterdir() if p.name.startswith(".") and p.name != ".git"]


JOB = ("--", sys.executable, "job.py")
CONFIG = ("--config", "gate.toml")


@pytest.mark.usefixtures("temporary")
def test_a_regression_fails_in_every_output(project: Path) -> None:
    outputs = ("-o", "r.json", "--junit", "j.xml", "--markdown", "m.md", "--gitlab", "g.json",
               "--history", "h.jsonl", "--trend", "t.svg", "--github")  # fmt: skip
    done = gate(project, "ab", "--base", "base", *CONFIG, *outputs, *JOB)
    assert done.returncode == 1, done.stderr
    assert "fail" in done.stdout
    assert "dltune: page_faults: ratio to the base" in done.stderr
    assert "::error title=dltune gate%3A page_faults::" in done.stderr
    found = doc.load(project / "r.json")
    assert (found.outcome, found.passed, found.kind) == ("fail", False, "whole")
    assert found.base.commit == git(project, "rev-parse", "base").strip()
    assert len(found.measured["base"][0].values) == found.verdicts[0].rounds
    assert ET.parse(project / "j.xml").getroot().get("failures") == "1"
    assert "limit failed" in (project / "m.md").read_text()
    assert len(json.loads((project / "g.json").read_text())) == 1
    assert ET.parse(project / "t.svg").getroot().tag.endswith("svg")
    assert len(verdicts.load(project / "h.jsonl")) == 1
    nothing_left(project)


@pytest.mark.usefixtures("temporary")
def test_the_same_code_passes_and_json_is_alone_on_stdout(project: Path) -> None:
    done = gate(project, "ab", "--base", "HEAD", *CONFIG, "--json", *JOB)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcome"] == "pass"
    assert any("the same commit" in note for note in found["notes"])
    nothing_left(project)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize(("meaning", "code"), [("pass", 0), ("fail", 1)])
def test_undecided_is_what_the_configuration_says(project: Path, meaning: str, code: int) -> None:
    (project / "strict.toml").write_text(
        f"undecided = '{meaning}'\nmetrics.background_share = {{ at_most = 0.5 }}\nbudget = 1e-9\n"
    )
    done = gate(project, "ab", "--base", "base", "--config", "strict.toml", *JOB)
    assert done.returncode == code, done.stderr
    assert f"counts undecided as {meaning}" in done.stdout
    assert "no Horovod report is configured" in done.stdout


@pytest.mark.usefixtures("temporary")
def test_each_side_runs_its_own_package(project: Path) -> None:
    """Although a copy of the package that is installed would be found otherwise."""
    (project / "pack").mkdir()
    (project / "pack" / "__init__.py").write_text("")
    (project / "pack" / "__main__.py").write_text("pass\n")
    commit(project, "slim")
    git(project, "branch", "-f", "base")
    (project / "pack" / "__main__.py").write_text(TOUCH)
    commit(project, "fat")
    done = gate(project, "ab", "--base", "base", *CONFIG, "--", sys.executable, "-m", "pack")
    assert done.returncode == 1, done.stderr + done.stdout


@pytest.mark.usefixtures("temporary")
def test_each_side_runs_the_program_that_it_has_built(project: Path) -> None:
    """Although there is one here, of a build by hand."""
    script = f"(echo '#!{sys.executable}'; cat job.py) > bench; chmod +x bench"
    for branch in ("base", "main"):
        git(project, "checkout", "-q", branch)
        (project / ".gitignore").write_text("bench\n")
        commit(project, "built", build_toml=f'build = "{script}"\n{QUICK}')
    subprocess.run(["sh", "-c", script], cwd=project, check=True)
    done = gate(project, "ab", "--base", "base", "--config", "build.toml", "--", "./bench")
    assert done.returncode == 1, done.stderr + done.stdout


@pytest.mark.usefixtures("temporary")
def test_a_baseline_is_recorded_and_held(project: Path) -> None:
    done = gate(project, "record", *CONFIG, "-o", "b.json", "--rounds", 5, *JOB)
    assert done.returncode == 0, done.stderr
    assert "page_faults: " in done.stdout
    done = gate(project, "check", "b.json", *CONFIG, *JOB)
    assert done.returncode == 0, done.stderr
    (project / "job.py").write_text(TOUCH.replace("20000", "60000"))
    done = gate(project, "check", "b.json", *CONFIG, "--json", *JOB)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["head"]["name"] == "this checkout"


@pytest.mark.usefixtures("temporary")
def test_a_baseline_of_another_machine_or_command_is_refused(project: Path) -> None:
    assert gate(project, "record", *CONFIG, "-o", "b.json", "--rounds", 5, *JOB).returncode == 0
    made = json.loads((project / "b.json").read_text())
    made["machine"]["name"] = "another machine altogether"
    (project / "other.json").write_text(json.dumps(made))
    done = gate(project, "check", "other.json", *CONFIG, *JOB)
    assert done.returncode == 2
    assert "was measured on another machine" in done.stderr
    done = gate(project, "check", "other.json", "--other-machine", *CONFIG, *JOB)
    assert done.returncode == 0, done.stderr
    assert "note: other.json was measured on another machine" in done.stdout
    done = gate(project, "check", "b.json", *CONFIG, "--", sys.executable, "-c", "pass")
    assert done.returncode == 2
    assert "was recorded with another command" in done.stderr
    done = gate(project, "check", "b.json", *JOB)  # without a configuration: the metric `time`
    assert done.returncode == 2
    assert "has no time" in done.stderr
    done = gate(project, "check", "b.json", "--measured", "b.json", *CONFIG)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("temporary")
def test_a_baseline_is_never_an_output(project: Path) -> None:
    assert gate(project, "record", *CONFIG, "-o", "b.json", "--rounds", 5, *JOB).returncode == 0
    made = (project / "b.json").read_bytes()
    for arguments, told in (
        (("check", "b.json", *CONFIG), "no command to measure"),
        (
            ("check", "b.json", *CONFIG, "-o", "b.json", "--overwrite", *JOB),
            "both input and output",
        ),
        (
            ("check", "b.json", "--measured", "b.json", *CONFIG, "--history", "b.json"),
            "is not a gate",
        ),
        (("ab", "--base", "base", "-o", "h", "--history", "h", *JOB), "used for two outputs"),
    ):
        done = gate(project, *arguments)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr
    assert (project / "b.json").read_bytes() == made


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.usefixtures("temporary")
def test_a_full_disk_behind_stdout_is_no_verdict(project: Path) -> None:
    assert gate(project, "record", *CONFIG, "-o", "b.json", "--rounds", 5, *JOB).returncode == 0
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dltune", "gate", "check", "b.json", "--measured", "b.json",
             *CONFIG],
            cwd=project,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr == "dltune: cannot write output: No space left on device\n"


@pytest.mark.usefixtures("temporary")
def test_pyperf_reads_what_is_written(project: Path) -> None:
    pyperf = pytest.importorskip("pyperf")
    (project / "time.toml").write_text("metrics.time = { ratio = 100 }\nconfidence = 0.5\n")
    written = ("--pyperf", "base.json", "head.json")
    done = gate(project, "ab", "--base", "base", "--config", "time.toml", *written, *JOB)
    assert done.returncode == 0, done.stderr
    suites = [pyperf.BenchmarkSuite.load(str(project / name)) for name in written[1:]]
    assert [suite.get_benchmark_names() for suite in suites] == [["time"], ["time"]]
    done = gate(project, "check", "base.json", "--measured", "head.json")
    assert done.returncode in (0, 1), done.stderr
    assert "pyperf:time" in done.stdout
    done = gate(project, "check", "base.json", *JOB)
    assert done.returncode == 2
    assert "dltune cannot run its benchmarks" in done.stderr


WRONG = {
    "a base that does not exist": (["ab", "--base", "nowhere", *JOB], "no revision 'nowhere'"),
    "no command": (["ab", "--base", "base"], "no command to measure"),
    "no such program": (["ab", "--base", "base", "--", "no-such-program"], "command not found"),
    "no configuration": (["ab", "--base", "base", "--config", "none.toml", *JOB], "cannot read"),
    "a trend without history": (["ab", "--base", "base", "--trend", "t.svg", *JOB], "--history"),
    "one file for two outputs": (
        ["ab", "--base", "base", "-o", "x", "--junit", "x", *JOB],
        "used for two outputs",
    ),
    "an output that exists": (["ab", "--base", "base", "-o", "gate.toml", *JOB], "exists"),
    "an output in no folder": (["ab", "--base", "base", "-o", "no/x.json", *JOB], "cannot write"),
    "no baseline": (["check", "none.json", *JOB], "cannot read none.json"),
    "a baseline of another kind": (["check", "gate.toml", *JOB], "is not a dltune.gate-baseline"),
    "measured and a command": (["check", "gate.toml", "--measured", "x", *JOB], "baseline"),
    "steps of a command without any": (
        ["record", "-o", "b.json", "--config", "steps.toml", *JOB],
        "neither imported TensorFlow nor",
    ),
    "a build that fails": (
        ["ab", "--base", "base", "--config", "build.toml", *JOB],
        "the build failed in base (base, ",
    ),
    "a command that fails in one checkout only": (
        ["ab", "--base", "base", *CONFIG, "--", sys.executable, "-c",
         "import sys; sys.exit('head' if 'range' in open('job.py').read() else 0)"],
        "in head (HEAD, ",
    ),
    "a command that takes too long": (
        ["ab", "--base", "base", "--config", "short.toml", "--", "sleep", "60"],
        "took longer than 0.2 s",
    ),
    "an unknown key": (["ab", "--base", "base", "--config", "typo.toml", *JOB], "mean ratio?"),
    "a file named absolutely": (
        ["ab", "--base", "base", "--", sys.executable, "PROJECT/job.py"],
        "base and head would run the same file",
    ),
    "a broken history": (
        ["ab", "--base", "base", "--history", "gate.toml", *JOB],
        "line 1, is not a gate",
    ),
    "a configuration that is an output": (
        ["record", "-o", "short.toml", "--config", "short.toml", "--overwrite", *JOB],
        "short.toml is both input and output",
    ),
    "a history that is an output": (
        ["ab", "--base", "base", "--history", "x", "--pyperf", "x", "b.json", *JOB],
        "x is both input and output",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_told_and_leaves_nothing(project: Path, name: str) -> None:
    commit(
        project,
        "configurations",
        steps_toml="metrics.step_time = { ratio = 1.1 }",
        build_toml="build = 'echo broken; exit 3'",
        short_toml="timeout = 0.2\nmetrics.time = { ratio = 1.1 }\ntimed = 'whole'",
        typo_toml="metrics.time = { ration = 1.1 }",
    )
    arguments, told = WRONG[name]
    done = gate(project, *(a.replace("PROJECT", str(project)) for a in arguments))
    assert done.returncode == 2, done.stdout + done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    nothing_left(project, "x", "x.json", "b.json", "t.svg")


@pytest.mark.usefixtures("temporary")
def test_a_dirty_work_tree_is_refused(project: Path) -> None:
    (project / "job.py").write_text("changed")
    done = gate(project, "ab", "--base", "base", *CONFIG, *JOB)
    assert done.returncode == 2
    assert "uncommitted changes: job.py" in done.stderr
    nothing_left(project)


def test_outside_of_a_repository(tmp_path: Path, temporary: Path) -> None:
    assert temporary.exists()
    (tmp_path / "project").mkdir()
    done = gate(tmp_path / "project", "ab", "--base", "main", *JOB)
    assert done.returncode == 2
    assert "not in a git repository" in done.stderr


def test_a_faulty_configuration_at_the_top_is_told_in_a_folder_below(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.dltune.gate]\nbudgit = 3\n")
    inner = project / "inner"
    inner.mkdir()
    done = gate(inner, "record", "-o", "b.json", *JOB)
    assert done.returncode == 2
    assert "did you mean budget?" in done.stderr
    assert not list(inner.iterdir())


@pytest.mark.usefixtures("temporary")
def test_a_full_disk_leaves_nothing_half_written(project: Path) -> None:
    """A limit on the size of files, which a full disk looks like."""
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "sys.argv = ['dltune', *sys.argv[1:]]\n"
        "from dltune.cli import main\nmain()\n"
    )
    assert gate(project, "record", *CONFIG, "-o", "b.json", "--rounds", 5, *JOB).returncode == 0
    arguments = ["gate", "check", "b.json", "--measured", "b.json", *CONFIG, "-o", "r.json",
                 "--junit", "j.xml", "--history", "h.jsonl"]  # fmt: skip
    done = subprocess.run(
        # without -B, compiled modules would be cut off at the limit, too, for all who import them
        [sys.executable, "-B", "-c", script, *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cannot write r.json: File too large" in done.stderr
    assert {p.name for p in project.iterdir()} == {".git", "b.json", "gate.toml", "job.py"}
