"""Results that unmodified PyTorch jobs give up and compute again: numbers, peaks, what is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch_steps
from hooked import JOBS
from memory_steps import profile
from torch_steps import COMPILED, compiled, ran, recorded
from torches import computes, needs_torch

from dltune.base.documents import struct_faults
from dltune.job import protocol
from dltune.schemas.profile import Framework, Profile
from dltune.schemas.pytorch_step import Calls
from dltune.systems.memory.decide import decide
from dltune.systems.memory.enforce import RELIEF
from dltune.systems.memory.pytorch import decide_compiled
from dltune.systems.memory.request import SMALLEST, Request
from dltune.systems.memory.section import Memory

pytestmark = [pytest.mark.tensorflow, needs_torch]


def profiled(calls: Calls | None) -> Profile:
    return msgspec.structs.replace(
        profile([]), framework=Framework("pytorch", "2.13", "", "3.11"), calls=calls
    )


def under(
    folder: Path, section: Memory, *arguments: object
) -> tuple[dict[str, Any], protocol.GivenUp]:
    groups = [{"calls": one.calls, "reads": one.reads} for one in section.given_up]
    orders = {"forward": section.calls, "groups": groups}
    computed, heard = ran(folder, RELIEF.under(orders), *arguments)
    (*_, last) = [one for one in heard if isinstance(one, protocol.GivenUp)]
    return computed, last


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return recorded(tmp_path_factory.mktemp("recorded"))[1]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    return torch_steps.alone(tmp_path_factory)


@pytest.fixture(scope="module")
def plain(alone: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return alone()


def test_a_long_chain_is_computed_again_for_its_end(tmp_path):
    """Deeper than Python calls by itself."""
    script = JOBS / "torch_chain.py"
    computes(tmp_path, script)
    plain = json.loads((tmp_path / "found.json").read_text())
    _, step = recorded(tmp_path, script=script)
    forward = [one.name for one in step.calls if one.phase == "forward"]
    chain = [at for at, name in enumerate(forward) if name.startswith("aten.tanh")]
    assert len(chain) == 400
    # each is read by the next one's second run and by its own gradient, the last one by `pow`'s
    groups = [{"calls": [at], "reads": [[0], [2]]} for at in chain]
    computed, heard = ran(
        tmp_path, RELIEF.under({"forward": forward, "groups": groups}), script=script
    )
    (*_, last) = [one for one in heard if isinstance(one, protocol.GivenUp)]
    assert computed == plain
    assert (last.groups, last.left) == (400, "")


@pytest.fixture(scope="module")
def sections(calls) -> dict[float, Memory]:
    """By the part of what can be saved that is left."""
    least = decide(profiled(calls)).section
    found = {0.0: least}
    for part in (0.6, 1.0):
        budget = round(least.live + least.peak + part * (least.before - least.peak))
        found[part] = decide(profiled(calls), Request(budget)).section
        assert found[part].live + found[part].peak <= budget
    return found


@pytest.mark.parametrize("part", [1.0, 0.6, 0.0])
def test_numbers_stay_bit_for_bit_and_the_peak_is_the_planned(part, sections, plain, tmp_path):
    section = sections[part]
    assert struct_faults("memory", section) == []
    computed, told = under(tmp_path, section)
    assert computed == plain
    assert (told.groups, told.other, told.left) == (len(section.given_up), "", "")
    assert (told.groups > 0) == (part < 1)
    assert told.steps == 7
    # where nearly all is given up, what holds a result while others are computed counts as well
    assert told.peak == pytest.approx(section.live + section.peak, rel=0.01 if part else 0.05)


@pytest.mark.parametrize(
    ("arguments", "other"),
    [
        (("--wider", 4), ""),
        (("--narrower", 4), ", aten.tanh.default, is missing"),
        (("--written", 4), ""),
        (("--functional",), ""),
        (("--twice",), ""),
        (("--accumulated",), ""),
        (("--closure",), ""),
        (("--shifted",), " is missing"),
    ],
)
def test_steps_that_are_others_than_planned_compute_the_same(
    arguments, other, sections, alone, tmp_path
):
    computed, told = under(tmp_path, sections[0.0], *arguments)
    assert computed == alone(*arguments)
    assert told.groups > 0
    assert (other in told.other) if other else not told.other


def test_what_comes_between_steps_is_none_of_them(sections, alone, tmp_path):
    section = sections[0.6]
    computed, told = under(tmp_path, section, "--validated")
    assert computed == alone("--validated")
    assert (told.groups, told.other) == (len(section.given_up), "")
    # each tensor of the validation is larger than all that a step holds
    assert section.live + section.peak < 256 * 16 * 24 * 24 * 4
    assert told.peak == pytest.approx(section.live + section.peak, rel=0.01)


@pytest.mark.parametrize(
    "argument", ["--functional", "--twice", "--accumulated", "--marked", "--apart"]
)
def test_planned_for_what_they_do(argument, alone, tmp_path):
    _, calls = recorded(tmp_path, argument)
    section = decide(profiled(calls)).section
    assert section.peak < 0.8 * section.before
    computed, told = under(tmp_path, section, argument)
    assert computed == alone(argument)
    assert (told.groups, told.other) == (len(section.given_up), "")
    assert told.steps <= 7


def test_a_slowdown_has_room_for_dltune_s_own_work(tmp_path):
    """It was measured in the job. Where that alone takes longer, nothing is given up."""
    _, calls = recorded(tmp_path)
    assert calls.crossing > 0.0
    ops = sum(call.seconds for call in calls.calls)
    section = decide(profiled(calls), Request(slowdown=10.0)).section
    assert section.hooks > len(calls.forward) * calls.crossing
    assert section.longer == section.added + section.hooks <= 10.0 * ops
    slow = msgspec.structs.replace(calls, crossing=11.0 * ops / len(calls.forward))
    nothing = decide(profiled(slow), Request(slowdown=10.0)).section
    assert (nothing.given_up, nothing.hooks, nothing.added) == ((), 0.0, 0.0)


def test_a_script_with_hooks_of_its_own_is_left_alone(sections, plain, tmp_path):
    computed, told = under(tmp_path, sections[0.0], "--hooked")
    assert computed == plain
    assert (told.groups, told.steps) == (0, 0)
    assert told.left == (
        "the script runs its steps inside a dispatch mode or hooks on saved tensors"
    )


def test_what_is_compiled_keeps_less_and_draws_no_number_again(alone, tmp_path):
    _, told = compiled(tmp_path)
    for request, precision in ((Request(slowdown=0.05), 0.01), (SMALLEST, 0.25)):
        section = decide_compiled(profiled(None), told.step, request)
        assert section.compiled is not None
        computed, heard = ran(tmp_path, RELIEF.under({"budget": section.compiled}), *COMPILED)
        (*_, came) = [one for one in heard if isinstance(one, protocol.GivenUp)]
        assert computed == alone(*COMPILED)
        assert (came.groups, came.left, came.steps) == (1, "", 5)
        assert came.peak == pytest.approx(section.live + section.peak, rel=precision)
        assert came.peak is not None
        assert came.peak < 0.9 * told.step.peak


def test_a_compilers_budget_where_nothing_is_compiled(plain, tmp_path):
    computed, heard = ran(tmp_path, RELIEF.under({"budget": 0.5}))
    (*_, came) = [one for one in heard if isinstance(one, protocol.GivenUp)]
    assert computed == plain
    assert (came.groups, came.left) == (0, "the script compiles no graph that computes gradients")
