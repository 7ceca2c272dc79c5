"""What the standalone job is given, and what is told of its answer."""

from __future__ import annotations

import msgspec
import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.profile.standalone import BASE, Task, outcome_notes, require_memory, standalone_task
from dltune.schemas.profile import Profile
from dltune.simulate.machine_transfer import Law

THERE = synthetic.machine(2)
CONVOLUTION = "Conv2D(float[{},9,9,3],float[3,3,3,8]){{padding=SAME, strides=[1,1,1,1]}}"


def profile(*keys: str) -> Profile:
    ops = [synthetic.op(key.split("(")[0], Law(1e-3, 0.0, 0.0), THERE, key=key) for key in keys]
    return synthetic.profile(THERE, ops, {"train": [synthetic.node("x", 0)]})


def test_each_batch_size_and_what_does_not_depend_on_it_once():
    made = standalone_task(profile(CONVOLUTION.format(24), "Mul(float[3,3,3,8],float[])"), [16, 32])
    assert [op.key for op in made.ops] == [
        CONVOLUTION.format(16),
        "Mul(float[3,3,3,8],float[])",
        CONVOLUTION.format(32),
    ]
    assert {op.measured for op in made.ops} == {24}
    assert made.ops[2].original == CONVOLUTION.format(24)
    assert not made.onednn


def test_without_batch_sizes_ops_run_as_they_were_measured():
    made = standalone_task(
        profile("_MklNative" + CONVOLUTION.format(24), "Identity(float[24,8])"), []
    )
    assert [op.key for op in made.ops] == ["_MklNative" + CONVOLUTION.format(24)]
    assert made.onednn


def test_ops_that_were_never_measured_cannot_run():
    found = profile(CONVOLUTION.format(24))
    bare = tuple(msgspec.structs.replace(op, times=()) for op in found.ops)
    with pytest.raises(UsageError, match="no op of this profile can run standalone"):
        standalone_task(msgspec.structs.replace(found, ops=bare), [16])


def test_memory_grows_with_the_batch():
    made = standalone_task(profile(CONVOLUTION.format(24)), [240])
    needed, key = made.memory()
    inputs = 240 * 9 * 9 * 3 * 4 + 3 * 3 * 3 * 8 * 4
    assert (needed, key) == (BASE + 2 * inputs + 256 * 10, CONVOLUTION.format(240))
    require_memory(made, needed)
    with pytest.raises(UsageError, match=r"needs about 0\.6 GiB to run standalone") as error:
        require_memory(made, needed - 1)
    assert "--batch" in (error.value.remedy or "")


def test_what_is_told():
    made = Task("", standalone_task(profile(*(f"Mul(float[24,{n}])" for n in range(1, 5))), []).ops)
    keys = [op.key for op in made.ops]
    left = {keys[0]: "it takes a resource"}
    assert outcome_notes(made, left, [keys[1], keys[2], "AddN(float[])"]) == [
        "2 of 4 ops ran standalone with the requested keys",
        "1 op was skipped: it takes a resource (Mul)",
        f"TensorFlow rewrote 1 of these ops differently, so their keys changed: {keys[3]}",
    ]
