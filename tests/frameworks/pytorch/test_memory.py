"""Results that unmodified PyTorch jobs give up and compute again: numbers, peaks, what is told."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hooked import JOBS
from memory_steps import profile
from torches import TORCH_PYTHON, computes, needs_torch, release

from dltune.frameworks.pytorch.adapters import memory_adapter
from dltune.job import messages
from dltune.job.launch import Job
from dltune.schemas import calls as documents
from dltune.schemas import compiled as compiled_documents
from dltune.schemas.calls import Calls
from dltune.schemas.profile import Framework, Profile
from dltune.systems.memory.compiled import decide as decide_compiled
from dltune.systems.memory.decide import decide
from dltune.systems.memory.section import Memory, faults

pytestmark = [pytest.mark.tensorflow, needs_torch]

SCRIPT = JOBS / "torch_memory.py"


def ran(
    folder: Path, adapter: Mapping[str, Any], *arguments: object, script: Path = SCRIPT
) -> tuple[dict[str, Any], list[messages.Message]]:
    """What the job has computed, and what its adapter told."""
    heard: list[messages.Message] = []
    job = Job(
        [str(TORCH_PYTHON), str(script), *map(str, arguments)],
        answer=lambda _: {"adapters": [adapter]},
        folder=folder,
    )
    with job:
        for event in job.events(1.0):
            if event and isinstance(
                event.message, messages.Called | messages.Compiled | messages.GivenUp
            ):
                heard.append(event.message)
    assert job.exit_code == 0
    return json.loads((folder / "found.json").read_text()), heard


def recorded(folder: Path, *arguments: object) -> tuple[dict[str, Any], Calls]:
    computed, heard = ran(folder, memory_adapter(), *arguments)
    (called,) = [one for one in heard if isinstance(one, messages.Called)]
    return computed, called.step


def profiled(calls: Calls | None) -> Profile:
    return msgspec.structs.replace(
        profile([]), framework=Framework("pytorch", "2.13", "", "3.11"), calls=calls
    )


def under(
    folder: Path, section: Memory, *arguments: object
) -> tuple[dict[str, Any], messages.GivenUp]:
    groups = [{"calls": one.calls, "reads": one.reads} for one in section.given_up]
    orders = {"forward": section.calls, "groups": groups}
    computed, heard = ran(folder, memory_adapter(orders), *arguments)
    (*_, last) = [one for one in heard if isinstance(one, messages.GivenUp)]
    return computed, last


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return recorded(tmp_path_factory.mktemp("recorded"))[1]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """What the job computes without dltune, once for the same arguments."""

    @functools.cache
    def computed(*arguments: object) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("alone")
        computes(folder, SCRIPT, *arguments)
        return dict(json.loads((folder / "found.json").read_text()))

    return computed


@pytest.fixture(scope="module")
def plain(alone: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return alone()


def test_recording_changes_no_number(calls, plain, tmp_path):
    computed, found = recorded(tmp_path)
    assert computed == plain
    assert list(documents.faults(found)) == []
    assert found.signature == calls.signature
    assert found.counted
    phases = {call.phase for call in found.calls}
    assert phases == {"forward", "backward", "aside"}
    assert all(layer.reads for layer in found.layers)  # also what is given by its name
    assert max(found.levels) > found.live


def test_a_long_chain_is_computed_again_for_its_end(tmp_path):
    """Deeper than Python calls by itself."""
    script = JOBS / "torch_chain.py"
    computes(tmp_path, script)
    plain = json.loads((tmp_path / "found.json").read_text())
    _, heard = ran(tmp_path, memory_adapter(), script=script)
    (called,) = [one for one in heard if isinstance(one, messages.Called)]
    forward = [one.name for one in called.step.calls if one.phase == "forward"]
    chain = [at for at, name in enumerate(forward) if name.startswith("aten.tanh")]
    assert len(chain) == 400
    # each is read by the next one's second run and by its own gradient, the last one by `pow`'s
    groups = [{"calls": [at], "reads": [[0], [2]]} for at in chain]
    computed, heard = ran(
        tmp_path, memory_adapter({"forward": forward, "groups": groups}), script=script
    )
    (*_, last) = [one for one in heard if isinstance(one, messages.GivenUp)]
    assert computed == plain
    assert (last.groups, last.left) == (400, "")


@pytest.fixture(scope="module")
def sections(calls) -> dict[float, Memory]:
    """By the part of what can be saved that is left."""
    least = decide(profiled(calls)).section
    found = {0.0: least}
    for part in (0.6, 1.0):
        budget = round(least.live + least.peak + part * (least.before - least.peak))
        found[part] = decide(profiled(calls), budget).section
        assert found[part].live + found[part].peak <= budget
    return found


@pytest.mark.parametrize("part", [1.0, 0.6, 0.0])
def test_numbers_stay_bit_for_bit_and_the_peak_is_the_planned(part, sections, plain, tmp_path):
    section = sections[part]
    assert list(faults(section)) == []
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


def test_a_script_with_hooks_of_its_own_is_left_alone(sections, plain, tmp_path):
    computed, heard = ran(tmp_path, memory_adapter(), "--hooked")
    assert heard == []
    computed, told = under(tmp_path, sections[0.0], "--hooked")
    assert computed == plain
    assert (told.groups, told.steps) == (0, 0)
    assert told.left == (
        "the script runs its steps inside a dispatch mode or hooks on saved tensors"
    )


def test_what_is_compiled_keeps_less_and_draws_no_number_again(alone, tmp_path):
    """Kernels are those of eager steps here, so that numbers stay bit for bit."""
    script = ("--compiled", "aot_eager_decomp_partition")
    computed, heard = ran(tmp_path, memory_adapter(), *script)
    (told,) = [one for one in heard if isinstance(one, messages.Compiled)]
    assert computed == alone(*script)
    assert list(compiled_documents.faults(told.step)) == []
    (graph,) = told.step.graphs
    first, *others = graph.rungs
    assert first.budget == 1.0
    # of older ones the partitioner keeps more
    assert min(one.kept for one in others) < first.kept * (0.5 if release() >= (2, 7) else 0.75)
    assert all(one.work > first.work for one in others)
    for slowdown, precision in ((0.05, 0.01), (None, 0.25)):
        section = decide_compiled(profiled(None), told.step, None, slowdown)
        assert section.compiled is not None
        computed, heard = ran(tmp_path, memory_adapter({"budget": section.compiled}), *script)
        (*_, came) = [one for one in heard if isinstance(one, messages.GivenUp)]
        assert computed == alone(*script)
        assert (came.groups, came.left, came.steps) == (1, "", 5)
        assert came.peak == pytest.approx(section.live + section.peak, rel=precision)
        assert came.peak is not None
        assert came.peak < 0.9 * told.step.peak


def test_a_compilers_budget_where_nothing_is_compiled(plain, tmp_path):
    computed, heard = ran(tmp_path, memory_adapter({"budget": 0.5}))
    (*_, came) = [one for one in heard if isinstance(one, messages.GivenUp)]
    assert computed == plain
    assert (came.groups, came.left) == (0, "the script compiles no graph that computes gradients")
