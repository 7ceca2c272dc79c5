"""A step of PyTorch's as it was called."""

from __future__ import annotations

import msgspec

from dltune.base.documents import struct_faults
from dltune.schemas.pytorch_step import Call, Calls, Storage

STEP = Calls(
    calls=(
        Call("aten.mul", "forward", 1.0, 8, (0,), (1,), (), True, False),
        Call("aten.sum", "forward", 1.0, 0, (1,), (2,), (), True, False),
        Call("aten.back", "backward", 1.0, 0, (1, 2), (3,), (), True, False),
    ),
    storages=(
        Storage(100, -1, 3, 3),
        Storage(10, 0, 1, 2),
        Storage(1, 1, 2, 2),
        Storage(5, 2, 2, 2),
    ),
    saved=((1, 1),),
    read=((1, 2),),
    counted=True,
)


def test_levels():
    assert struct_faults("", STEP) == []
    assert STEP.live == 100
    assert STEP.levels == [118, 111, 116]


def test_its_signature_is_of_what_is_differentiated():
    assert STEP.forward == ("aten.mul", "aten.sum")
    other = msgspec.structs.replace(STEP, calls=STEP.calls[:2])
    assert other.signature == STEP.signature
    larger = (*STEP.storages[:1], Storage(20, 0, 1, 2), *STEP.storages[2:])
    assert msgspec.structs.replace(STEP, storages=larger).signature != STEP.signature


def test_faults():
    replace = msgspec.structs.replace
    call = replace(STEP.calls[0], reads=(9,), scratch=-1)
    storage = Storage(-1, 0, -5, 2)
    broken = replace(
        STEP,
        calls=(call, *STEP.calls[1:]),
        storages=(STEP.storages[0], storage, *STEP.storages[2:]),
        read=((4, -1),),
    )
    told = "\n".join(struct_faults("", broken))
    for part in ("calls[0]", "reads", "scratch", "storages[1]", "bytes", "held", "read"):
        assert part in told
    moved = replace(STEP, calls=(STEP.calls[1], STEP.calls[0], STEP.calls[2]))
    assert struct_faults("", moved) == [
        "calls must list each storage in gives of the call that its born names"
    ]
