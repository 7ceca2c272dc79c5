"""What docs/ci has for GitHub and GitLab: its scripts are run here, as far as that goes without
their runners."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository import git

from dltune.gate import verdicts
from dltune.schemas import gate as doc

CI = Path(__file__).parents[2] / "docs" / "ci"
# decided in a few rounds: the budget is never spent, however slow the machine is
QUICK = "budget = 400\nconfidence = 0.5\nmetrics.page_faults = { ratio = 1.5 }\n"
TOUCH = "x = bytearray(20000 * 4096)\nfor i in range(20000): x[i * 4096] = 1\n"
JOB = "python job.py 'two words'"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Under git: `same` does what `base` does, `slower` touches much memory."""
    top = tmp_path / "project"
    top.mkdir()
    git(top, "init", "-q", "-b", "main")
    (top / "pyproject.toml").write_text("[tool.dltune.gate]\n" + QUICK)
    (top / ".gitignore").write_text("gate.*\n*.jsonl\ngl-*\n")
    first = "import sys\nassert sys.argv[1:] == ['two words']\n"
    for name, body in (("base", ""), ("same", "# nothing else\n"), ("slower", TOUCH)):
        (top / "job.py").write_text(first + body)
        git(top, "add", ".")
        git(top, "commit", "-qm", name)
        git(top, "branch", name)
    return top


def ran(
    project: Path, script: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """As a runner does it: each line must succeed."""
    programs = project.parent / "bin"
    programs.mkdir(exist_ok=True)
    for name, what in (("dltune", f"{sys.executable} -m dltune"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {what} "$@"\n')
        (programs / name).chmod(0o755)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=project,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )


def evaluated(text: str, known: dict[str, str]) -> str:
    """`${{ a || b }}` of what is known; the rest is empty, as on GitHub."""

    def of(found: re.Match[str]) -> str:
        names = [name.strip() for name in found[1].split("||")]
        return next((known[name] for name in names if known.get(name)), "")

    return re.sub(r"\$\{\{(.*?)\}\}", of, text)


@pytest.mark.parametrize(
    ("head", "event", "code"),
    [
        ("slower", "github.event.pull_request.base.sha", 1),
        ("same", "github.event.pull_request.base.sha", 0),
        ("same", "github.event.before", 0),
    ],
)
def test_the_action(project: Path, head: str, event: str, code: int) -> None:
    action: dict[str, Any] = yaml.safe_load((CI / "gate" / "action.yml").read_text())
    inputs = {
        f"inputs.{name}": str(one.get("default", "")) for name, one in action["inputs"].items()
    }
    known = inputs | {"inputs.command": JOB, event: "base"}
    (step,) = [one for one in action["runs"]["steps"] if one.get("id") == "gate"]
    for one in action["runs"]["steps"]:
        assert "${{" not in one.get("run", "")  # what a contributor names must not become a script
    git(project, "checkout", "-q", head)
    told = {name: project.parent / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    environment = {name: evaluated(value, known) for name, value in step["env"].items()}
    done = ran(project, step["run"], environment | {name: str(to) for name, to in told.items()})
    assert done.returncode == code, done.stderr
    outcome = "fail" if code else "pass"
    assert told["GITHUB_OUTPUT"].read_text() == f"outcome={outcome}\n"
    assert told["GITHUB_STEP_SUMMARY"].read_text() == (project / "gate.md").read_text()
    assert ("::error title=" in done.stderr) == bool(code)
    assert doc.load(project / "gate.json").outcome == outcome
    assert len(verdicts.load(project / "dltune-gate.jsonl")) == 1


def test_without_a_base_no_outcome_is_told(project: Path) -> None:
    action = yaml.safe_load((CI / "gate" / "action.yml").read_text())
    (step,) = [one for one in action["runs"]["steps"] if one.get("id") == "gate"]
    environment = {"COMMAND": JOB, "CONFIG": "", "HISTORY": "h.jsonl", "NAME": "gate"}
    for base in ("0" * 40, ""):
        done = ran(project, step["run"], environment | {"BASE": base})
        assert done.returncode == 0
        assert "no revision before this one" in done.stdout
    done = ran(project, step["run"], environment | {"BASE": "1" * 40})
    assert done.returncode == 2
    assert "there is no revision '1111" in done.stderr
    assert not (project / "gate.json").exists()


@pytest.mark.parametrize("earlier", [True, False])
@pytest.mark.parametrize("verdict", [True, False])
def test_the_comment_is_the_gate_s_own(project: Path, earlier: bool, verdict: bool) -> None:
    """As far as that goes without GitHub: `gh` is asked which comment is the gate's, and is given
    its text."""
    action = yaml.safe_load((CI / "gate" / "action.yml").read_text())
    (step,) = [one for one in action["runs"]["steps"] if one.get("id") == "comment"]
    programs = project.parent / "bin"
    programs.mkdir()
    said = project.parent / "said"
    listing = 'case "$*" in *--jq*) echo 7;; esac\n' if earlier else ""
    (programs / "gh").write_text(f'#!/bin/sh\necho "$MARK $*" >> {said}\n{listing}')
    (programs / "gh").chmod(0o755)
    if verdict:
        (project / "quick.md").write_text("it holds\n")
    done = ran(project, step["run"], {"NAME": "quick", "REPOSITORY": "me/it", "NUMBER": "3"})
    assert done.returncode == 0, done.stderr
    asked, written = said.read_text().splitlines()
    assert asked.startswith("<!-- dltune gate quick --> api repos/me/it/issues/3/comments ")
    where = "--method PATCH repos/me/it/issues/comments/7" if earlier else "repos/me/it/issues/3"
    assert where in written
    assert "body=@quick.comment" in written
    text = (project / "quick.comment").read_text().splitlines()
    assert text[0] == "<!-- dltune gate quick -->"
    assert text[1] == (
        "it holds" if verdict else "The gate has no verdict; see the log of its run."
    )


def test_the_examples_name_what_the_action_takes() -> None:
    action = yaml.safe_load((CI / "gate" / "action.yml").read_text())
    workflow = yaml.safe_load((CI / "github.yml").read_text())
    uses = workflow["jobs"]["gate"]["steps"][-1]
    assert "/docs/ci/gate@" in uses["uses"]
    assert set(uses["with"]) <= set(action["inputs"])
    needed = {name for name, one in action["inputs"].items() if one.get("required")}
    assert needed <= set(uses["with"])


@pytest.mark.parametrize(
    ("head", "variable", "code"),
    [("slower", "CI_MERGE_REQUEST_DIFF_BASE_SHA", 1), ("same", "CI_COMMIT_BEFORE_SHA", 0)],
)
def test_the_template(project: Path, head: str, variable: str, code: int) -> None:
    spec, template = (CI / "gitlab.yml").read_text().split("\n---\n")
    inputs = yaml.safe_load(spec)["spec"]["inputs"]
    given = {name: str(one.get("default", "")) for name, one in inputs.items()}
    given |= {"command": JOB, "install": "echo nothing"}
    for name, value in given.items():
        template = template.replace(f"$[[ inputs.{name} ]]", value)
    assert "$[[" not in template
    job = yaml.safe_load(template)["dltune-gate"]
    assert job["variables"]["COMMAND"] == {"value": JOB, "expand": False}
    git(project, "checkout", "-q", head)
    base = git(project, "rev-parse", "base").strip()
    done = ran(project, "\n".join(job["script"]), {variable: base, "COMMAND": given["command"]})
    assert done.returncode == code, done.stderr
    reports = job["artifacts"]["reports"].values()
    for name in (*job["artifacts"]["paths"], *reports, *job["cache"]["paths"]):
        assert (project / name).is_file(), name
