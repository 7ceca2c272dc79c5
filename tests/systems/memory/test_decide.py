"""From a profile to an order: under a budget, as little as can be, for a share of time."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from memory_steps import LAYERS, LIVE, MIB, node, profile, training

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.native import solver
from dltune.schemas.profile import Framework, Profile
from dltune.simulate.step_graph import peak
from dltune.systems.memory.decide import PARTS, decide
from dltune.systems.memory.model.profiled_step import measured
from dltune.systems.memory.model.schedule import Step, lives
from dltune.systems.memory.planner import PLANNER
from dltune.systems.memory.request import Request


def needed(found: Profile, planned) -> int:
    """The peak of the planned order, counted anew."""
    step = measured(found.steps[0])
    place = {name: number for number, name in enumerate(step.graph.names)}
    steps = [Step(place[planned.nodes[at]]) for at in planned.order]
    return peak(lives(step.graph, steps, step.written))[0]


def test_a_budget_is_met_and_costs_what_runs_again():
    found = training()
    planned = decide(found, Request(LIVE + 6 * MIB))
    section = planned.section
    assert struct_faults("memory", section) == []
    assert needed(found, section) == section.peak <= 6 * MIB
    assert section.before == (LAYERS + 1) * MIB == planned.peak.bytes
    assert section.again > 0
    assert section.added == pytest.approx(section.again * 0.01)
    assert section.seconds == pytest.approx(2 * LAYERS * 0.01)
    assert (section.live, section.budget) == (LIVE, LIVE + 6 * MIB)


def test_with_room_nothing_runs_again():
    section = decide(training(), Request(LIVE + 9 * MIB)).section
    assert (section.again, section.added) == (0, 0.0)


def test_the_least_can_be_had_and_less_cannot():
    found = training()
    least = decide(found).section
    assert least.budget is None
    assert needed(found, least) == least.peak < 6 * MIB
    again = decide(found, Request(LIVE + least.peak)).section
    assert again.peak == least.peak
    with pytest.raises(UsageError) as caught:
        decide(found, Request(LIVE + least.peak - 1))
    assert "budget too small: 3.0 MiB of persistent memory plus at least" in str(caught.value)
    assert f"pass --budget {(LIVE + least.peak) // MIB}MiB or more" in (caught.value.remedy or "")


def test_a_share_of_time_is_kept_and_used():
    found = training()
    peaks = []
    for share in (0.0, 0.1, 0.3, 10.0):
        section = decide(found, Request(slowdown=share)).section
        assert section.added <= share * section.seconds * (1 + 1e-9)
        peaks.append(section.peak)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > peaks[-1] == decide(found).section.peak


def test_the_peak_is_named():
    """Where the first gradient is there beside all layers, which it was computed from."""
    planned = decide(training(), Request(LIVE + 9 * MIB))
    assert planned.peak.at == f"Gradient_{LAYERS}"
    assert len(planned.peak.largest) == 5
    assert planned.peak.largest[0][1] == MIB


def test_the_course_has_the_peaks():
    section = decide(training(), Request(LIVE + 6 * MIB)).section
    assert len(section.course) == len(section.course_before) == PARTS
    assert max(section.course) == section.peak
    assert max(section.course_before) == section.before


def test_as_many_examples_as_have_room():
    """Each MiB is of 16 examples, but that of the last gradient, which nothing reads."""
    found = training()
    section = decide(found, Request(LIVE + 12 * MIB, largest_batch=True)).section
    least = decide(found).section.peak
    assert section.peak <= 12 * MIB
    assert 12 * MIB / least <= section.batch / 16 <= 12 * MIB / (least - MIB)
    few = decide(found, Request(LIVE + 2 * MIB, largest_batch=True)).section
    assert 1 <= few.batch < 16
    with pytest.raises(UsageError, match="a batch of one sample does not fit"):
        decide(found, Request(LIVE + 1, largest_batch=True))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Enter_loop", "Enter_loop is part of a loop or a condition"),
        ("_Recv", "_Recv receives a tensor from another device or process"),
        ("CollectiveReduceV2_sum", "receives a tensor from another device or process"),
    ],
)
def test_steps_that_cannot_be_put_in_order_are_refused(name, told):
    """Of two devices each could wait for what the other sends later."""
    other = msgspec.structs.replace(
        node(1, "Conv2D_0", [], 4), type=name.rpartition("_")[0] or name
    )
    first = msgspec.structs.replace(node(0, "Conv2D_1", [], 4), stateful=True)
    nodes = [first, msgspec.structs.replace(other, name=name)]
    with pytest.raises(UsageError, match=told):
        decide(profile(nodes))


def test_profiles_that_do_not_tell_enough_are_refused():
    found = training()
    (step,) = found.steps
    with pytest.raises(UsageError, match="contains no steps"):
        decide(msgspec.structs.replace(found, steps=()))
    for change, told in (
        ({"start": None}, "does not contain the times at which the step's ops ran"),
        ({"stateful": False}, "does not contain which ops keep state"),
    ):
        nodes = tuple(msgspec.structs.replace(one, **change) for one in step.nodes)
        with pytest.raises(UsageError, match=told):
            decide(profile(nodes))


def test_room_for_anything_is_told_as_such():
    with pytest.raises(UsageError, match="a batch of more than 16777216 samples fits"):
        decide(training(), Request(2**60, largest_batch=True))


def test_what_pytorch_does_not_have_is_refused():
    torch = Framework("pytorch", "2.13", "", "3.11")
    found = msgspec.structs.replace(training(), framework=torch)
    with pytest.raises(
        UsageError, match="--largest-batch, --deepest and --offload support TensorFlow only"
    ):
        decide(found, Request(LIVE, largest_batch=True))
    with pytest.raises(UsageError, match="does not contain the memory that a step holds"):
        decide(found, Request(LIVE))


def test_a_profile_without_memory_is_refused():
    with pytest.raises(UsageError, match="does not contain the job's memory use"):
        decide(profile([node(0, "Conv2D_0", [], 4)], memory=None))


SOLVE = 3600.0  # seconds, of which so small a step takes a few


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A solver that a busy machine is slow to start is not ended for it."""
    monkeypatch.setattr(solver, "GRACE", SOLVE)


def test_the_best_selection_can_be_sought_and_the_bound_is_told():
    found = training()
    budget = LIVE + 5 * MIB
    quick = decide(found, Request(budget, bounded=True))
    best = decide(found, Request(budget, solve=SOLVE))
    assert best.failure is None
    assert needed(found, best.section) == best.section.peak <= 5 * MIB
    assert 0 < best.section.added <= quick.section.added
    assert 0 < quick.bound <= best.section.added + 1e-9
    assert 0 < best.bound <= best.section.added + 1e-9
    assert not any(name.startswith("ortools") for name in sys.modules)


def test_where_nothing_runs_again_nobody_is_asked(monkeypatch):
    monkeypatch.delattr(solver, "run")
    assert decide(training(), Request(LIVE + 9 * MIB, solve=SOLVE)).bound == 0.0


@pytest.fixture
def asked(tmp_path):
    """Decides as the command does, from a file, in --json's words."""
    path = tmp_path / "profile.json"
    path.write_bytes(msgspec.json.encode(training()))
    given = {
        "smallest": False,
        "slowdown": None,
        "largest_batch": False,
        "deepest": False,
        "offload": None,
        "solve": None,
    }
    return lambda **changed: PLANNER.decide(None, profile=path, **{**given, **changed})


@pytest.mark.parametrize("solve", [None, SOLVE])
def test_a_solver_that_dies_leaves_the_quick_selection_and_says_so(
    asked, solve, monkeypatch, tmp_path
):
    quick = decide(training(), Request(LIVE + 5 * MIB)).section
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    found = asked(budget=LIVE + 5 * MIB, solve=solve)
    assert found.section == quick
    told = "the solver was killed by SIGSEGV; the plan uses the best selection up to then"
    assert told in found.remarks
    assert not found.summary["bound"]


def test_the_bound_is_a_remark_and_a_figure(asked):
    found = asked(budget=LIVE + 5 * MIB)
    share = found.summary["bound"] / found.section.seconds
    told = f"every selection adds at least {share:.2%} to the step"
    assert any(told in one for one in found.remarks)


def test_solving_is_refused_without_a_budget_or_ortools(asked, monkeypatch):
    with pytest.raises(UsageError, match="--solve requires --budget"):
        asked(budget=None, smallest=True, solve=SOLVE)
    monkeypatch.setattr(solver, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="needs ortools, which is not installed") as caught:
        asked(budget=LIVE + 5 * MIB, solve=SOLVE)
    assert caught.value.remedy == "pip install 'dltune[memory]'"
    assert asked(budget=LIVE + 5 * MIB).summary["bound"] is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "exactly one of --budget, --smallest and --slowdown"),
        ({"budget": LIVE, "smallest": True}, "exactly one of --budget, --smallest and --slowdown"),
        ({"smallest": True, "largest_batch": True}, "--largest-batch requires --budget"),
        ({"slowdown": 0.1, "deepest": True}, "--deepest requires --budget and cannot"),
        ({"budget": LIVE, "deepest": True, "largest_batch": True}, "--deepest requires --budget"),
        ({"smallest": True, "offload": Path("/tmp")}, "--offload requires --budget and cannot"),
        ({"budget": LIVE, "offload": Path("/tmp"), "solve": SOLVE}, "--offload requires --budget"),
        ({"slowdown": 0.1, "solve": SOLVE}, "--solve requires --budget"),
    ],
)
def test_options_that_do_not_go_together_make_no_request(options, why):
    with pytest.raises(UsageError, match=why):
        Request(**options)


@pytest.mark.parametrize("option", ["largest_batch", "deepest", "offload"])
def test_means_that_pytorch_does_not_have_are_refused_before_they_are_tried(option):
    torch = Framework("pytorch", "2.13", "", "3.11")
    request = Request(LIVE, **{option: Path("/nowhere") if option == "offload" else True})
    with pytest.raises(UsageError, match="support TensorFlow only"):
        request.require_support(msgspec.structs.replace(training(), framework=torch))
