"""What is simulated of an order is what the plan predicts of it."""

from __future__ import annotations

import msgspec
import pytest
import synthetic
from served import MIB, SERVER, first_figure, profile, receive

from dltune.systems.transfers.decide import Cluster, decide
from dltune.systems.transfers.replay import replayed

OTHER = "/job:ps/task:1"
# each of four ops needs the one before it and a tensor; another waits for the last without reading
CHAIN = [
    *(receive(f"w{n}", (5 - n) * MIB, (SERVER, OTHER)[n % 2]) for n in range(4)),
    receive("w3", 0, OTHER),
    *(synthetic.node(f"Op{n + 1}", n + 1, [n, 4 + n] if n else [0]) for n in range(4)),
    synthetic.node("Again", 4, [4]),
]


@pytest.mark.parametrize("cluster", [Cluster(), Cluster(servers=3), Cluster(bandwidth=3.0 * MIB)])
@pytest.mark.parametrize("nodes", [first_figure(), CHAIN])
def test_simulated_steps_take_what_is_predicted(nodes, cluster):
    made = profile(nodes, 1.0, 1.5, 2.0, 0.5, senders=(SERVER, OTHER))
    section = decide(made, "improved", cluster)
    (receiver,) = section.receivers
    predicted = {one.order: one.seconds for one in receiver.predictions}
    none, planned = replayed(made, made.steps[0], receiver)
    assert none.makespan == pytest.approx(predicted["none"])
    assert planned.makespan == pytest.approx(predicted["improved"])


def test_tensors_come_as_the_section_is_written():
    made = profile(first_figure(), 1.0, 1.0)
    (receiver,) = decide(made, "tac", Cluster()).receivers
    turned = msgspec.structs.replace(receiver, transfers=receiver.transfers[::-1])
    without = msgspec.structs.replace(receiver, transfers=receiver.transfers[1:])
    for edited in (turned, without):
        _, planned = replayed(made, made.steps[0], edited)
        assert list(planned.end)[:2] == [1.0, 2.0]  # the second parameter, which then stands first
        assert planned.makespan == 4.0
