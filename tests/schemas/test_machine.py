from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.machine import SCHEMA, Core, Machine, load

GOOD = Machine(
    SCHEMA,
    "a machine",
    (Core((0, 4), 0, 0, 0), Core((1, 5), 0, 0, 0), Core((2,), 1, 1, 1)),
    quota=1.5,
    smt_throughput=1.2,
)


def changed(**fields: object) -> Machine:
    return msgspec.structs.replace(GOOD, **fields)


def test_a_possible_machine():
    assert struct_faults("", GOOD) == []
    assert GOOD.tiles == ((0, 1), (2,))
    assert GOOD.sockets == 2


@pytest.mark.parametrize(
    ("machine", "fault"),
    [
        (changed(cores=(), smt_throughput=None), "cores must not be empty"),
        (
            changed(cores=(Core((), 0, 0, 0),), smt_throughput=None),
            "cores[0].cpus must not be empty",
        ),
        (changed(cores=(Core((-1, 2), 0, 0, 0),)), "cores[0].cpus[0] must be at least 0, got -1"),
        (
            changed(cores=(Core((0, 0), 0, 0, 0),)),
            "cores[0].cpus must not repeat a CPU, got 0, which is also in cores[0]",
        ),
        (
            changed(cores=(Core((0, 1), 0, 0, 0), Core((2, 1), 0, 0, 0))),
            "cores[1].cpus must not repeat a CPU, got 1, which is also in cores[0]",
        ),
        (changed(cores=(Core((0, 1), -2, 0, 0),)), "cores[0].tile must be at least 0, got -2"),
        (changed(cores=(Core((0, 1), 0, -1, 0),)), "cores[0].socket must be at least 0, got -1"),
        (changed(cores=(Core((0, 1), 0, 0, -1),)), "cores[0].numa must be at least 0, got -1"),
        (
            changed(cores=(Core((0, 1), 3, 0, 0), Core((2,), 3, 1, 0))),
            "cores[1].tile must be within one socket, got 3 on sockets 0 (cores[0]) and 1",
        ),
        (changed(quota=0.0), "quota must be above 0, got 0.0"),
        (changed(quota=-1.0), "quota must be above 0, got -1.0"),
        (changed(shared_cache=0), "shared_cache must be above 0, got 0"),
        (changed(memory=-5), "memory must be above 0, got -5"),
        (changed(smt_throughput=0.0), "smt_throughput must be above 0 and at most 2 (the hardware"),
        (changed(smt_throughput=2.1), "smt_throughput must be above 0 and at most 2 (the hardware"),
        (
            changed(cores=(Core((0,), 0, 0, 0),)),
            "smt_throughput must be above 0 and at most 1 (the hardware",
        ),
    ],
)
def test_each_impossibility_is_named_by_its_field(machine, fault):
    faults = struct_faults("", machine)
    assert len(faults) == 1
    assert faults[0].startswith(fault)


def test_a_file_with_many_faults_tells_them_all(tmp_path):
    path = tmp_path / "machine.json"
    content = msgspec.to_builtins(changed(quota=0.0, memory=0, smt_throughput=9.0))
    content["cores"] = [{**core, "cpus": [7]} for core in content["cores"]]
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError) as error:
        load(path)
    for field in ("cores[1].cpus", "cores[2].cpus", "quota", "memory", "smt_throughput"):
        assert f"\n  {field} must " in str(error.value)


def test_a_good_file(tmp_path):
    path = tmp_path / "machine.json"
    path.write_bytes(msgspec.json.encode(GOOD))
    assert load(path) == GOOD


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ("{", "is not a dltune.machine file"),
        (
            '{"schema": "dltune.profile/1"}',
            "is a dltune.profile file, but a dltune.machine file is needed",
        ),
        ('{"schema": "dltune.machine/9"}', "this version of dltune reads 'dltune.machine/1'"),
        ('{"schema": "dltune.machine/1", "name": "x", "cores": [], "speed": 1}', "speed"),
    ],
)
def test_files_that_are_not_machines(tmp_path, text, what):
    path = tmp_path / "machine.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=what):
        load(path)


def test_the_fingerprint_is_that_of_the_topology():
    assert changed(memory=1).fingerprint == GOOD.fingerprint
    assert changed(quota=None).fingerprint != GOOD.fingerprint
    assert changed(cores=GOOD.cores[:2]).fingerprint != GOOD.fingerprint


def test_the_example_of_the_docs() -> None:
    assert (
        len(
            load(Path(__file__).parents[2] / "scripts" / "docs" / "examples" / "machine.json").cores
        )
        == 4
    )
