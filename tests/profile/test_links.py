"""Links, as arrivals tell of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from told import MS

from dltune.job import protocol
from dltune.profile.assembly import links
from dltune.schemas.profile import (
    Node,
    Partner,
    Samples,
    Step,
    Tensor,
)

SERVER, WORKER = "/job:ps/replica:0/task:{}/device:CPU:0", "/job:worker/replica:0/task:0"
ONCE = Samples(1, 1.0, 1.0, 0.0)


def receiving(sizes: Sequence[int], servers: Sequence[int]) -> Step:
    nodes = [
        Node(
            f"r{i}", "_Recv", 0, (), (), size, 1.0, outputs=(Tensor("float", size),),
            partner=Partner(f"edge_{i}_w{i}", SERVER.format(server), WORKER),
        )
        for i, (size, server) in enumerate(zip(sizes, servers, strict=True))
    ]  # fmt: skip
    return Step("s", "", 1, 1.0, ONCE, ONCE, tuple(nodes))


def arrived(order: Sequence[int], sizes: Sequence[int], delay: float, each: float, rate: float):
    """A step in which the receives come in this order, over one link."""
    now, events = delay, []
    for node in order:
        now += each + sizes[node] / rate
        events.append((node, 0, -1, 0, 0, round(now * 1e9), "0"))
    return protocol.Execution(0, 0, 1, 0, 0, 0, 0, events)


@given(
    st.lists(st.integers(1, 256).map(lambda n: n * 4096), min_size=3, max_size=30, unique=True),
    st.floats(0, 0.1),
    st.floats(1e-5, 1e-3),
    st.floats(1e6, 1e9),
    st.randoms(use_true_random=False),
)
def test_what_a_link_takes_is_found_from_any_order(sizes, delay, each, rate, chance):
    steps = [
        arrived(chance.sample(range(len(sizes)), len(sizes)), sizes, delay, each, rate)
        for _ in range(4)
    ]
    (link,) = links([(receiving(sizes, [0] * len(sizes)), steps)])
    assert (link.sender, link.receiver) == ("/job:ps/task:0", "/job:worker/task:0")
    assert link.transfers == 4 * len(sizes)
    # events are whole nanoseconds
    assert link.fit == pytest.approx(1, abs=1e-5)
    whole = [delay + n * each + n * 5e5 / rate for n in (1, len(sizes))]
    assert link.bandwidth
    told = [link.delay + n * link.each + n * 5e5 / link.bandwidth for n in (1, len(sizes))]
    assert told == pytest.approx(whole, rel=0.02, abs=1e-6)


def test_each_server_has_a_link_of_its_own():
    """Over all steps that receive from it."""
    sizes = [1000 * (i + 1) for i in range(20)]
    servers = [i % 2 for i in range(20)]
    chance = random.Random(1)
    steps = []
    for _ in range(5):
        events = []
        for server, rate in ((0, 1e6), (1, 4e6)):
            order = [i for i in range(20) if servers[i] == server]
            chance.shuffle(order)
            events += arrived(order, sizes, 0.002, 1e-4, rate).events
        steps.append(protocol.Execution(0, 0, 1, 0, 0, 0, 0, events))
    step = receiving(sizes, servers)
    found = links([(step, steps[:3]), (step, steps[3:])])
    assert [link.sender for link in found] == ["/job:ps/task:0", "/job:ps/task:1"]
    assert [link.bandwidth for link in found] == pytest.approx([1e6, 4e6], rel=1e-3)
    assert [link.each for link in found] == pytest.approx([1e-4] * 2, rel=1e-2)
    assert [link.transfers for link in found] == [50, 50]


def test_what_comes_together_tells_of_no_bandwidth():
    step = receiving([4000] * 5, [0] * 5)
    events = [(node, 0, -1, 0, 0, 3 * MS, "0") for node in range(5)]
    (link,) = links([(step, [protocol.Execution(0, 0, 1, 0, 0, 0, 0, events)] * 3)])
    assert (link.bandwidth, link.each, link.fit) == (None, 0.0, 0.0)
    assert link.delay == pytest.approx(0.003)


def test_tensors_of_one_size_tell_of_a_bandwidth():
    """How many had come explains as much as their bytes; with some noise either may be better."""
    chance = random.Random(2)
    steps = []
    for _ in range(5):
        ran = arrived(range(6), [4 << 20] * 6, 0.01, 0.0, 1e9)
        late = [(*e[:5], e[5] + chance.randrange(2 * MS), e[6]) for e in ran.events]
        steps.append(protocol.Execution(0, 0, 1, 0, 0, 0, 0, late))
    (link,) = links([(receiving([4 << 20] * 6, [0] * 6), steps)])
    assert link.bandwidth == pytest.approx(1e9, rel=0.1)


def test_what_waits_for_something_else_tells_nothing():
    """An answer, and what has no bytes, come late."""
    sizes = [1 << 20, 1 << 20, 1 << 20, 0, 1 << 20]
    nodes = list(receiving(sizes, [0] * 5).nodes)
    replace = msgspec.structs.replace
    nodes[4] = replace(nodes[4], partner=replace(nodes[4].partner, answer=True))
    ran = arrived(range(3), sizes, 0.01, 0.0, 1e8)
    ran.events.extend((node, 0, -1, 0, 0, 900 * MS, "0") for node in (3, 4))
    (link,) = links([(Step("s", "", 1, 1.0, ONCE, ONCE, tuple(nodes)), [ran] * 3)])
    assert link.bandwidth == pytest.approx(1e8, rel=1e-6)
    assert link.transfers == 9


def test_a_receive_that_never_came():
    (link,) = links([(receiving([4000], [0]), [protocol.Execution(0, 0, 1, 0, 0, 0, 0, [])])])
    assert link.transfers == 0


def test_what_stays_in_one_task_is_no_link():
    inside = Partner("edge_1_w", f"{WORKER}/device:CPU:0", f"{WORKER}/device:CPU:1")
    assert inside.tasks is None
    nodes = (Node("r", "_Recv", 0, (), (), 1, 1.0, partner=inside),)
    assert links([(Step("s", "", 1, 1.0, ONCE, ONCE, nodes), ())]) == ()
