"""A profile made ready for simulation."""

from __future__ import annotations

import msgspec
import synthetic
from served import MIB, profile, receive

from dltune.simulate.workload import workload


def test_each_tensor_of_another_task_comes_when_it_came() -> None:
    """All receives are one op of the profile, of which only a median is known."""
    came = [
        msgspec.structs.replace(receive(name, MIB), start=0.0, end=end)
        for name, end in (("first", 0.25), ("second", 4.0))
    ]
    nodes = [*came, receive("unseen", MIB), synthetic.node("Op1", 1, [0])]
    made = workload(profile(nodes, 1.0))
    (timeline,) = made.uniform(1, 1).timelines
    assert list(timeline.end) == [0.25, 4.0, 1.0, 1.25]
