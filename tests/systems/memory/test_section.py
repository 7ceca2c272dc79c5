"""What cannot be in the section on memory."""

from __future__ import annotations

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.systems.memory.section import GivenUp, Memory, Offloaded

SECTION = Memory("step", ("a", "b"), (0, 1, 0), 8, 2, 6, 4, 1.0, 0.5, (6, 2), (4, 4))


def test_a_section_that_can_be() -> None:
    assert struct_faults("memory", SECTION) == []
    assert SECTION.again == 1
    assert struct_faults("memory", msgspec.structs.replace(SECTION, budget=None, batch=64)) == []
    assert struct_faults("memory", offloading()) == []


def offloading(**changed: int) -> Memory:
    moved = msgspec.structs.replace(Offloaded(1, 0, 64, 0, 1, 1, 2), **changed)
    return msgspec.structs.replace(SECTION, offloaded=(moved,), folder="/somewhere")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"place": 2}, "offloaded[0].place must be at least 0 and below 2 (the number of"),
        ({"slot": -1}, "offloaded[0].slot must be finite and not negative, got -1"),
        ({"out": 1}, "use < 3 (the length of memory.order), got 1, 1, 1, 2"),
        ({"use": 3}, "use < 3 (the length of memory.order), got 0, 1, 1, 3"),
    ],
)
def test_what_cannot_be_offloaded_is_told(changed: dict[str, int], told: str) -> None:
    (fault,) = struct_faults("memory", offloading(**changed))
    assert told in fault


CALLS = msgspec.structs.replace(
    SECTION,
    calls=("aten.mul.Tensor", "aten.relu_.default"),
    given_up=(GivenUp((0, 1), ((1,), (2,))),),
)


def test_calls_of_pytorch_that_are_given_up() -> None:
    assert struct_faults("memory", CALLS) == []


@pytest.mark.parametrize(
    ("given_up", "told"),
    [
        ([GivenUp((0, 2), ((1,), (2,)))], "calls must be at least 0 and below 2 (the number of"),
        (
            [GivenUp((1, 0), ((1,), (2,)))],
            "calls must be in increasing order and not in another entry, got [1, 0]",
        ),
        (
            [GivenUp((), ((1,), (2,)))],
            "calls must be in increasing order and not in another entry, got []",
        ),
        (
            [GivenUp((0,), ((1,), (2,)))] * 2,
            "calls must be in increasing order and not in another entry, got [0]",
        ),
        ([GivenUp((0,), ((1,), (-2,)))], "reads[1][0] must be finite and not negative, got -2"),
        ([GivenUp((0,), ((1,),))], "reads must be at least two rows of the same length"),
        ([GivenUp((0,), ((1,), (2, 0)))], "reads must be at least two rows of the same length"),
    ],
)
def test_calls_that_cannot_be_given_up_are_told(given_up: list[GivenUp], told: str) -> None:
    (fault,) = struct_faults("memory", msgspec.structs.replace(CALLS, given_up=tuple(given_up)))
    assert fault.startswith("memory.given_up[")
    assert told in fault


def test_what_pytorch_gives_up_does_not_leave_for_a_file() -> None:
    both = msgspec.structs.replace(offloading(), calls=("aten.mul.Tensor",))
    assert struct_faults("memory", both) == [
        "memory.offloaded must be empty when memory.calls are present"
    ]


def test_a_file_needs_a_folder() -> None:
    (fault,) = struct_faults("memory", msgspec.structs.replace(offloading(), folder=None))
    assert fault == "memory.folder must name a folder when memory.offloaded is not empty"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"budget": 0}, "memory.budget must be at least 1, got 0"),
        ({"batch": 0}, "memory.batch must be at least 1, got 0"),
        ({"peak": -1}, "memory.peak must be finite and not negative, got -1"),
        ({"added": float("nan")}, "memory.added must be finite and not negative, got nan"),
        ({"course": (1, -1)}, "memory.course[1] must be finite and not negative, got -1"),
        ({"course": ()}, "memory.course must not be empty"),
        ({"nodes": ("a", "b\n")}, r"memory.nodes[1] must be a printable name, got 'b\n'"),
        ({"nodes": ("a", "a")}, "memory.nodes must not repeat a name"),
        ({"order": (0,)}, "memory.order must contain each index from 0 to 1 at least once"),
        ({"order": (0, 1, 2)}, "memory.order must contain each index from 0 to 1 at least once"),
        ({"order": (-1, 0, 1)}, "memory.order must contain each index from 0 to 1 at least once"),
    ],
)
def test_what_cannot_be_is_told(changed: dict[str, object], told: str) -> None:
    assert struct_faults("memory", msgspec.structs.replace(SECTION, **changed)) == [told]
