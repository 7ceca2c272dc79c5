from __future__ import annotations

import platform

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.system import topology
from dltune.system.roofs import measure, roofs_binding
from dltune.system.roofs import measure as kept
from dltune.system.roofs.measure import KERNELS, LEAST_TURNS, Case
from dltune.system.roofs.roofs_binding import Memory, Refused, peak

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="there are no kernels")


def case(rates) -> Case:
    """One whose turns reach these rates."""
    left = iter(rates)
    return Case(lambda _: (1.0, next(left)))


def test_a_case_is_settled_when_three_turns_came_near_the_best():
    steady, single = case([100, 99, 99] + [50] * 20), case([100, 90, 90] + [50] * 20)
    assert measure._rounds([steady, single], 0.0, lambda: 0.0) == 1
    assert steady.settled
    assert len(steady.rates) == LEAST_TURNS
    assert not single.settled


def test_time_goes_to_the_cases_that_are_not_settled():
    steady, late = case([100] * 99), case([50 + n for n in range(15)] + [99, 100, 99] * 20)
    time = iter(range(99))
    assert measure._rounds([steady, late], 30, lambda: next(time)) == 0
    assert len(steady.rates) == LEAST_TURNS
    assert len(late.rates) == 18


def test_a_turn_takes_about_as_long_as_it_is_to():
    times = []

    def turn(count):
        times.append(count)
        return count * 1e-6, count

    found = Case(turn)
    found.calibrate(10)
    assert found.times == round(measure.TURN / 1e-6)
    assert times == [10] * measure.TRIALS


def test_operations_and_bytes_are_those_of_all_cores():
    cpus = [core.cpus[0] for core in topology.local().cores]
    seconds, operations = peak("sse2_float", cpus, 1000)
    assert seconds > 0
    assert operations == len(cpus) * 1000 * 12 * 4 * 2
    with Memory(cpus, [2**16] * len(cpus)) as memory:
        seconds, moved = memory.stream("sse2_read", [2**15] * len(cpus), 7)
        assert seconds > 0
        assert moved == len(cpus) * 7 * 2**15
        _, moved = memory.stream("sse2_triad", [2**15], 1)
        assert moved == 2**15 // 3 // 512 * 512 * 3


def test_what_is_not_there_is_refused():
    cpus = [topology.local().cores[0].cpus[0]]
    with pytest.raises(Refused, match="does not support these instructions"):
        peak("nothing", cpus, 1)
    with pytest.raises(Refused, match="pinned"):
        peak("sse2_float", [100_000], 1)
    with Memory(cpus, [4096]) as memory, pytest.raises(Refused, match="memory"):
        memory.stream("sse2_read", [2**20], 1)


def test_another_kind_of_cpu_is_told_in_a_sentence(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="only on x86-64, and this CPU is aarch64"):
        measure.measure(topology.local(), 0.0)


def test_a_cache_that_cannot_be_written_is_told(monkeypatch):
    monkeypatch.setenv("DLTUNE_CACHE", "/proc/dltune")
    with pytest.raises(UsageError, match="cannot write to the cache folder /proc/dltune"):
        kept.roofs_of(topology.local(), lambda: None)


def test_this_machine_is_measured_once_and_kept(tmp_path, monkeypatch):
    roofs_binding.load()  # what is built is left where it is
    monkeypatch.setenv("DLTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "SECONDS", 0.0)
    machine = topology.local()
    assert kept.kept(machine) is None
    told = []
    found = kept.roofs_of(machine, lambda: told.append("measured"))
    assert struct_faults("", found) == []
    assert found.cores == len(machine.cores)
    assert None not in (found.peak("float32"), found.peak("float64"), found.bandwidth("memory"))
    assert kept.roofs_of(machine, lambda: told.append("again")) == found
    assert told == ["measured"]
    assert kept.kept(msgspec.structs.replace(machine, quota=1.0)) is None
    kept.path(machine).write_text("{}")
    assert kept.kept(machine) is None, "a damaged file is measured anew"


def test_too_little_memory_leaves_out_what_lies_beyond_the_caches():
    notes: list[str] = []
    small = msgspec.structs.replace(topology.local(), memory=2**20)
    assert "memory" not in [level.name for level in measure._levels(small, notes)]
    assert "more than 25% of the available memory" in notes[0]
    assert measure._levels(msgspec.structs.replace(small, memory=2**40), notes)[-1].name == "memory"


def test_what_cannot_be_measured_is_told_once():
    cases = measure.Cases()

    def refused(_):
        raise Refused("no such registers")

    for cores in (1, 2):
        cases.add(KERNELS[-1], "amx_int8", cores, refused, 1)
    assert cases.found == {}
    assert cases.notes == ["AMX: no such registers"]
