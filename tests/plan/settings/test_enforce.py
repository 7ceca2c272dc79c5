"""Settings in real processes: Pythons that import a package named tensorflow, which is empty."""

from __future__ import annotations

import ctypes.util
import os
import sys
from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.base.errors import JobFailed, UsageError
from dltune.job.launch import Job
from dltune.plan.settings.choices import Applied, applied, variables
from dltune.plan.settings.enforce import Settings
from dltune.plan.settings.setting import Circumstances, Means
from dltune.plan.settings.space import SPACE
from dltune.schemas.plan import Uniform
from dltune.schemas.settings import Choice, SettingsPlan
from dltune.system import memory, topology

MACHINE = synthetic.machine(4)
JOB = (sys.executable, "train.py")
HERE = Circumstances(topology.local(), JOB, dict(os.environ))
INSTALLED = [name for name in memory.SONAMES if memory.find_allocator(name, os.environ)]


def plan(*choices: tuple[str, str]) -> SettingsPlan:
    chosen = tuple(Choice(*choice) for choice in choices)
    return SettingsPlan(JOB, chosen, "rounding", None, None, (), (), 0.0, None)


def run(folder: Path, around: Applied, code: str, **environment: str) -> tuple[Settings, str]:
    """The outcome of a job that runs `code`, and what it printed."""
    (folder / "tensorflow").mkdir(exist_ok=True)
    (folder / "tensorflow" / "__init__.py").touch()
    settings = Settings(around, MACHINE)
    base = {**os.environ, "PYTHONPATH": str(folder), **environment}
    with open(folder / "out", "wb") as out:
        job = Job(
            around.command((sys.executable, "-c", code)),
            answer=settings.answer,
            heard=settings.hear,
            environment={**base, **around.environment(base)},
            stdout=out.fileno(),
        )
    with job:
        for _ in job.events(1.0):
            pass
        settings.outcome(job.exit_code)
    return settings, (folder / "out").read_text()


OF_ENVIRONMENT = [
    (setting, value)
    for setting in SPACE
    if setting.unfit(HERE) is None
    for value in setting.values(HERE)
    if (means := setting.means(value, HERE)).environment or means.joined
]


@pytest.mark.parametrize(
    ("setting", "value"), OF_ENVIRONMENT, ids=lambda x: x if isinstance(x, str) else x.name
)
def test_variables_are_in_force_in_the_job_and_nowhere_else(tmp_path, setting, value):
    before = dict(os.environ)
    means = setting.means(value, HERE)
    settings, printed = run(
        tmp_path,
        Applied((Choice(setting.name, value),), means),
        "import os, json, tensorflow; print(json.dumps(dict(os.environ)))",
    )
    there = msgspec.json.decode(printed)
    for name, wanted in means.environment.items():
        assert there[name] == wanted
    for name, parts in means.joined.items():
        assert all(part in there[name] for part in parts)
    assert settings.faults == []
    assert dict(os.environ) == before


@pytest.mark.skipif(not INSTALLED, reason="no other allocator is installed")
@pytest.mark.parametrize("name", INSTALLED)
def test_a_preloaded_allocator_is_mapped_and_the_users_own_library_stays(tmp_path, name):
    mine = Path(ctypes.util.find_library("z") or "libz.so.1")
    around = applied(plan(("allocator", name)), MACHINE, JOB, os.environ)
    settings, printed = run(
        tmp_path,
        around,
        "import tensorflow, os; print(os.environ['LD_PRELOAD'], open('/proc/self/maps').read())",
        LD_PRELOAD=str(mine),
    )
    first, _, maps = printed.partition(" ")
    (library,) = around.means.preload
    assert first == f"{library}:{mine}"
    assert str(library.resolve()) in maps
    assert settings.faults == []


@pytest.mark.skipif(not INSTALLED, reason="no other allocator is installed")
def test_an_allocator_that_the_job_throws_out_is_told(tmp_path):
    around = applied(plan(("allocator", INSTALLED[0])), MACHINE, JOB, os.environ)
    again = "import os, sys; os.environ.pop('LD_PRELOAD'); "
    again += "os.execv(sys.executable, [sys.executable, '-c', 'import tensorflow'])"
    settings, _ = run(tmp_path, around, again)
    assert ["is not loaded" in fault for fault in settings.faults] == [True]


def test_a_script_that_sets_the_variable_itself_is_told(tmp_path):
    around = applied(plan(("onednn", "on")), MACHINE, JOB, {})
    code = "import os; os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'; import tensorflow"
    settings, _ = run(tmp_path, around, code)
    (fault,) = settings.faults
    assert "TF_ENABLE_ONEDNN_OPTS is 0" in fault
    respects = code.replace(
        "['TF_ENABLE_ONEDNN_OPTS'] = '0'", ".setdefault('TF_ENABLE_ONEDNN_OPTS', '0')"
    )
    assert run(tmp_path, around, respects)[0].faults == []


def test_what_the_user_has_set_stays_and_is_told(tmp_path):
    mine = {"TF_ENABLE_ONEDNN_OPTS": "0", "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"}
    around = applied(plan(("onednn", "on"), ("allocator", "glibc-keep")), MACHINE, JOB, mine)
    assert around.choices == ()
    assert around.environment(mine) == {}
    assert len(around.left) == 2
    assert "TF_ENABLE_ONEDNN_OPTS=0" in around.left[0]
    assert "trim_threshold=1" in around.left[1]


def test_a_section_on_threads_goes_before(tmp_path):
    both = plan(("threads", "2x1"), ("onednn", "on"))
    assert applied(both, MACHINE, JOB, {}).means.uniform == Uniform(2, 1)
    placed = applied(both, MACHINE, JOB, {}, placed=True)
    assert placed.means.uniform is None
    assert [choice.setting for choice in placed.choices] == ["onednn"]
    assert "another section of the plan or the launcher" in placed.left[0]


def test_a_job_without_tensorflow_has_not_been_run_with_the_settings(tmp_path):
    around = applied(plan(("onednn", "on")), MACHINE, JOB, {})
    with pytest.raises(UsageError, match="no process of the job imported TensorFlow"):
        run(tmp_path, around, "pass")
    with pytest.raises(JobFailed) as failed:
        run(tmp_path, around, "raise SystemExit(3)")
    assert failed.value.exit_code == 3


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        (("onednnn", "on"), "there is no setting 'onednnn'"),
        (("onednn", "maybe"), "onednn=maybe"),
        (("threads", "0x1"), "threads=0x1"),
        (("affinity", "one-per-core"), "affinity=one-per-core"),
        (("input_threads", "-1"), "input_threads=-1"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_or_left_with_partial(choice, complaint):
    both = plan(choice, ("batch_norm", "fused"))
    with pytest.raises(UsageError, match=complaint):
        applied(both, MACHINE, JOB, {})
    around = applied(both, MACHINE, JOB, {}, partial=True)
    assert around.means == Means(hooks={"batch_norm": "fused"})
    assert [complaint in sentence for sentence in around.left] == [True]


def test_an_allocator_that_is_not_here_names_what_to_install(monkeypatch):
    monkeypatch.setattr(memory, "find_allocator", lambda *_: None)
    with pytest.raises(UsageError, match=r"libtcmalloc.*not installed") as error:
        applied(plan(("allocator", "tcmalloc")), MACHINE, JOB, {})
    assert "libtcmalloc-minimal4" in str(error.value.remedy)


def test_every_variable_of_the_space_is_known_to_those_who_watch():
    assert set(variables(HERE)) >= {"TF_ENABLE_ONEDNN_OPTS", "TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE"}
