from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.cli import cli, doctor
from dltune.schemas import machine
from dltune.system.checks import Check
from dltune.system.roofs import measure

CHECKS = [
    Check("cores", "ok", "2 cores"),
    Check("CPU quota", "limited", "a quota of 1.5 CPUs", "raise it"),
    Check("compiler", "missing", "none", "install one"),
]


@pytest.fixture
def found(monkeypatch):
    def pretend(*checks: Check) -> None:
        monkeypatch.setattr(doctor, "examine", lambda: list(checks))

    return pretend


def run(*arguments: str):
    return CliRunner().invoke(cli, ["doctor", *arguments])


def test_plain_lines_are_aligned_and_the_remedy_stands_below(found):
    found(*CHECKS)
    result = run()
    assert result.exit_code == 0
    assert result.stdout == (
        "cores      ok       2 cores\n"
        "CPU quota  limited  a quota of 1.5 CPUs\n"
        "                    -> raise it\n"
        "compiler   missing  none\n"
        "                    -> install one\n"
    )


def test_json(found):
    found(*CHECKS)
    result = run("--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["schema"] == "dltune.doctor/1"
    assert report["checks"][0] == {
        "name": "cores",
        "state": "ok",
        "found": "2 cores",
        "remedy": None,
    }
    assert [check["state"] for check in report["checks"]] == ["ok", "limited", "missing"]


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_something_required_that_is_missing_is_exit_code_1(found, arguments):
    found(Check("compiler", "missing", "none", "install one", required=True))
    result = run(*arguments)
    assert result.exit_code == 1
    assert "install one" in result.stdout


def test_something_required_that_is_limited_is_not(found):
    found(Check("compiler", "limited", "old", "renew it", required=True))
    assert run().exit_code == 0


def doctor_process(*prefix: str, **environment: str) -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "dltune", "doctor", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert "Traceback" not in done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_a_file_is_for_ranks(found, tmp_path):
    found(*CHECKS)
    result = run("-o", str(tmp_path / "ranks.json"))
    assert isinstance(result.exception, UsageError)
    assert "-o and --overwrite need --ranks" in str(result.exception)


def test_ranks_have_no_self_test():
    result = run("--ranks", "2", "--selftest")
    assert isinstance(result.exception, UsageError)
    assert "--selftest cannot be combined with --ranks" in str(result.exception)


def test_this_machine():
    checks = doctor_process()
    assert list(checks) == [
        "cores",
        "CPU quota",
        "SMT",
        "tiles",
        "NUMA",
        "huge pages",
        "allocators",
        "hardware events",
        "software events",
        "perf paranoid",
        "compiler",
        "TensorFlow",
        "native plugin",
        "PyTorch",
        "py-spy",
    ]
    for check in checks.values():
        assert check["state"] in ("ok", "limited", "missing")
        assert check["found"]
        assert (check["remedy"] is None) == (check["state"] == "ok")


def test_under_an_affinity_mask():
    cpu = min(os.sched_getaffinity(0))
    checks = doctor_process("taskset", "-c", str(cpu))
    assert checks["cores"]["found"].startswith(f"1 core (CPU {cpu})")
    assert checks["cores"]["state"] == "limited"


def test_without_a_compiler(tmp_path):
    checks = doctor_process(PATH=str(tmp_path), CXX="")
    assert checks["compiler"]["state"] == "missing"


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from dltune.cli import doctor; doctor.examine(); "
        "print([m for m in ('tensorflow', 'numpy', 'rich', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_selftest_counts_known_work_and_says_what_it_cannot():
    done = subprocess.run(
        [sys.executable, "-m", "dltune", "doctor", "--selftest", "--json"],
        capture_output=True,
        text=True,
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    faults = checks["page faults of touched pages"]
    if checks["software events"]["state"] == "ok":
        assert faults["state"] == "ok", faults
        assert "4,096 page faults, within 1%" in faults["found"]
    loop = checks["instructions of a loop"]
    if checks["hardware events"]["state"] == "ok":
        assert loop["state"] == "ok", loop
    else:
        assert loop["found"] == f"not tested: {checks['hardware events']['found']}"


def test_roofs_stand_alone():
    for other in (["--selftest"], ["--ranks", "2"], ["--overwrite"]):
        result = run("--roofs", *other)
        assert isinstance(result.exception, UsageError)
        assert "--roofs can only be combined with --json" in str(result.exception)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there are no kernels")
def test_roofs_of_this_machine(monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    result = run("--roofs")
    assert result.exit_code == 0, result.output
    assert "peak arithmetic rate, 10^9 operations per second" in result.stdout
    assert "peak bandwidth, GB/s" in result.stdout
    assert "clock frequency under load" in result.stdout
    found = msgspec.json.decode(run("--roofs", "--json").stdout, type=machine.Roofs)
    assert struct_faults("", found) == []
