from __future__ import annotations

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.system.topology import BUILTIN_MACHINES, builtin_machine


def test_the_papers_machine():
    machine = builtin_machine("knl-7250")
    assert len(machine.cores) == 68
    assert [len(tile) for tile in machine.tiles] == [2] * 34
    assert {len(core.cpus) for core in machine.cores} == {4}
    assert machine.sockets == 1
    assert machine.shared_cache == 2**20
    assert machine.memory == 16 * 2**30
    assert machine.smt_throughput == pytest.approx(41.1 / 39.9, abs=0.005)


@pytest.mark.parametrize("name", sorted(BUILTIN_MACHINES))
def test_every_known_machine_is_possible(name):
    assert struct_faults("", builtin_machine(name)) == []


def test_a_machine_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_bytes(msgspec.json.encode(builtin_machine("knl-7250")))
    assert builtin_machine(str(path)) == builtin_machine("knl-7250")


def test_a_name_nearly_known():
    with pytest.raises(UsageError, match="did you mean knl-7250") as error:
        builtin_machine("KNL7250")
    assert "knl-7250" in error.value.remedy


@pytest.mark.parametrize("path", ["nowhere/mine", "mine.json"])
def test_a_file_that_is_not_there(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        builtin_machine(path)
