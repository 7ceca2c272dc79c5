"""What cannot be in the section on parallelism."""

from __future__ import annotations

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.systems.parallelism.schemas.strategy import Baseline, Divided, Parallelism

ONE = Divided("a", "product", ("sample", "channel"), (2, 1), 1, (0, 1), 1, "w")
ON_MESH = msgspec.structs.replace(ONE, degrees=(2, 1), replicas=2, devices=(0, 1, 2, 3),
                                  axes=(0, None))  # fmt: skip
SECTION = Parallelism(
    network="n",
    topology="t",
    digests=("", ""),
    devices=("x", "y"),
    mesh=(),
    operators=(ONE,),
    seconds=1.0,
    compute=2.0,
    bytes=3,
    baselines=(Baseline("data parallel", 1.0, 2.0, 3),),
    proposals=1,
    searched=0.0,
)
MESH = {"devices": ("x", "y", "z", "u"), "mesh": (2, 2), "operators": (ON_MESH,)}


def test_sections_that_can_be() -> None:
    assert struct_faults("parallelism", SECTION) == []
    assert (
        struct_faults("parallelism", msgspec.structs.replace(SECTION, **MESH, consumer="keras"))
        == []
    )


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seconds": -1.0}, "parallelism.seconds must be finite and not negative, got -1.0"),
        ({"searched": float("inf")}, "parallelism.searched must be finite"),
        ({"batch": 0}, "parallelism.batch must be at least 1, got 0"),
        (
            {"devices": ("x", "x")},
            "parallelism.devices must contain each name only once, got 'x' 2 times",
        ),
        ({"baselines": (Baseline("b", -1.0, 0.0, 0),)}, ".baselines[0] (b).seconds must be finite"),
        (
            {"baselines": (Baseline("b", 1.0, 0.0, 0),) * 2},
            "must contain each name only once, got 'b' 2",
        ),
        ({"mesh": (2,)}, ".axes must be of length 1 (one for each axis of the mesh), got ()"),
        ({"mesh": (4,)}, "parallelism.mesh must multiply to 2 (the number of devices), got (4,)"),
        ({"consumer": "jax"}, "parallelism.mesh must not be empty for jax"),
        ({"hosts": ("h",)}, "parallelism.hosts must be of length 2 (one for each device)"),
        ({"operators": ()}, "parallelism.operators must not be empty"),
        (
            {"operators": (ONE, ONE)},
            "parallelism.operators must contain each name only once, got 'a' 2",
        ),
        (
            {"operators": (msgspec.structs.replace(ONE, devices=(0, 2)),)},
            ".devices must be at least 0 and below 2",
        ),
        (
            {"operators": (msgspec.structs.replace(ONE, devices=(0,)),)},
            ".devices must have length 2 (one for each part and replica), got 1",
        ),
        (
            {"operators": (msgspec.structs.replace(ONE, degrees=(2,)),)},
            ".degrees must have length 2 (one for each dimension)",
        ),
        (
            {"operators": (msgspec.structs.replace(ONE, parameter=2),)},
            ".parameter must be at least 0 and below 2",
        ),
    ],
)
def test_what_cannot_be(changed: dict[str, object], told: str) -> None:
    found = struct_faults("parallelism", msgspec.structs.replace(SECTION, **changed))
    assert any(told in one for one in found), found
