"""Turns are taken again where the machine was elsewhere, by its own account."""

from __future__ import annotations

import pytest

from dltune.gate import fairness
from dltune.gate.fairness import Disturbance
from dltune.schemas.io import Pressure


class Machine:
    """What it accounts of a turn of a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stolen = self.throttled = self.waited = self.now = 0.0
        monkeypatch.setattr(fairness, "stolen", lambda: self.stolen)
        monkeypatch.setattr(fairness.kernel_files, "throttled", lambda pid: self.throttled)
        monkeypatch.setattr(fairness.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(fairness, "PressureWatch", lambda pid: self)
        monkeypatch.setattr(fairness.os, "cpu_count", lambda: 2)
        monkeypatch.setattr(fairness.os, "sched_getaffinity", lambda pid: {0, 1})

    def shares(self) -> tuple[Pressure, ...]:
        return (Pressure("io", "job", 1.0, None), Pressure("memory", "job", self.waited, None))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def turn(machine: Machine, found: Disturbance, **account: float) -> bool:
    over = found.turn()
    machine.now += 1.0
    machine.waited = account.get("waited", 0.0)
    machine.stolen += account.get("stolen", 0.0)
    machine.throttled += account.get("throttled", 0.0)
    return over()


def test_what_the_hypervisor_took_is_taken_again(machine: Machine) -> None:
    found = Disturbance()
    assert turn(machine, found, stolen=0.11)
    assert not turn(machine, found)
    (told,) = found.notes
    assert "the hypervisor gave CPU time to other machines" in told
    assert told.startswith("1 pair of turns repeated")


@pytest.mark.parametrize(
    ("account", "told"),
    [
        ({"throttled": 0.11}, "the CPU quota was used up in 1 of 2 pairs of turns"),
        ({"waited": 0.06}, "memory was short of demand in 1 of 2 pairs of turns"),
    ],
)
def test_what_the_change_may_have_done_is_told_and_counts(
    machine: Machine, account: dict[str, float], told: str
) -> None:
    found = Disturbance()
    assert not turn(machine, found, **account)
    assert not turn(machine, found)
    assert found.notes == [told]


def test_a_little_is_let_go(machine: Machine) -> None:
    found = Disturbance()
    assert not turn(machine, found, stolen=0.09, throttled=0.09, waited=0.04)
    assert found.notes == []


def test_a_machine_that_is_always_disturbed_is_measured_as_it_is(machine: Machine) -> None:
    found = Disturbance()
    again = [turn(machine, found, stolen=1.0) for _ in range(300)]
    assert again.count(True) == found.again
    assert again.count(False) == found.kept >= 2 * found.again - 2
    taken, counted = found.notes
    assert f"{found.again} pairs of turns" in taken
    assert counted.endswith(f"in {found.kept} of {found.kept} pairs of turns")


def test_here() -> None:
    """Without a pretended machine: an answer, whatever it is."""
    assert Disturbance().turn()() in (True, False)
