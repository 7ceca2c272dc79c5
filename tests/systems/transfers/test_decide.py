"""From profiles to orders of transfers."""

from __future__ import annotations

import msgspec
import pytest
import synthetic
from served import MIB, SERVER, WORKER, device, first_figure, profile, receive

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.profile import Step
from dltune.systems.transfers.decide import Cluster, decide, op_seconds, worthwhile
from dltune.systems.transfers.section import Receiver
from dltune.systems.transfers.show import intent

OTHER = "/job:ps/task:1"


def tensors(receiver: Receiver) -> list[str]:
    return [one.tensor for one in receiver.transfers]


@pytest.mark.parametrize("order", ["improved", "tac", "tic"])
def test_the_order_of_the_papers_first_figure(order):
    made = profile(first_figure(), 1.0, 1.0)
    assert struct_faults("", made) == []
    section = decide(made, order, Cluster())
    assert struct_faults("transfers", section) == []
    (receiver,) = section.receivers
    assert receiver.task == WORKER
    assert receiver.signature == made.steps[0].signature
    if order != "tic":  # which has nothing to go by: one receive is as good as the other
        assert tensors(receiver) == ["first", "second"]
    # two seconds of transfers, two of ops: one of them beside the second transfer
    assert (receiver.lower, receiver.upper) == (2.0, 4.0)
    predicted = {one.order: (one.seconds, one.efficiency) for one in receiver.predictions}
    assert predicted["tac"] == (3.0, 0.5)
    assert predicted[order][0] == (4.0 if order == "tic" else 3.0)
    assert 3.0 <= predicted["none"][0] <= 4.0


def test_a_tensor_that_is_waited_for_and_read_has_one_turn():
    nodes = [
        receive("w", 0),
        receive("w", MIB),
        receive("large", 2 * MIB),
        synthetic.node("Op1", 1, [0]),
    ]
    (receiver,) = decide(profile(nodes, 2.0), "improved", Cluster()).receivers
    assert [(t.tensor, t.seconds) for t in receiver.transfers] == [("w", 1.0), ("large", 2.0)]
    # the op that waits without reading cannot begin before the tensor has come
    assert {p.order: p.seconds for p in receiver.predictions}["improved"] == 3.0


@pytest.mark.parametrize(("bandwidth", "window"), [(25e6, 64 << 10), (400e6, 200_000), (10e9, MIB)])
def test_no_more_is_handed_over_than_half_a_millisecond_of_the_link(bandwidth, window):
    alone = MIB / bandwidth
    made = profile(first_figure(), alone, alone, bandwidth=bandwidth)
    assert decide(made, "tac", Cluster()).window == window
    without = profile(first_figure(), alone, alone, bandwidth=None)
    assert decide(without, "tac", Cluster(bandwidth=bandwidth)).window == window
    assert decide(without, "tic", Cluster()).window == MIB


def test_where_an_order_brings_nothing_none_is_held_back():
    made = profile(first_figure(), 1.0, 1.0)
    section = decide(made, "tac", Cluster(bandwidth=1e9))
    assert section.window == 2 * MIB
    assert not worthwhile(section.receivers[0], "tac")
    (sentence,) = intent(section)
    assert sentence == f"{SERVER} to {WORKER}: 2 tensors in the order tac, no tensor delayed"
    assert worthwhile(decide(made, "tac", Cluster()).receivers[0], "tac")


def test_without_a_bandwidth_only_tic_goes():
    made = profile(first_figure(), 1.0, 1.0, bandwidth=None)
    for order in ("improved", "tac"):
        with pytest.raises(UsageError, match="the profile contains no bandwidth") as caught:
            decide(made, order, Cluster())
        assert "--order tic" in (caught.value.remedy or "")
    (receiver,) = decide(made, "tic", Cluster()).receivers
    assert {one.seconds for one in receiver.transfers} == {None}
    assert (receiver.lower, receiver.upper, receiver.predictions) == (None, None, ())
    named = decide(made, "tac", Cluster(bandwidth=2.0 * MIB))
    assert [one.seconds for one in named.receivers[0].transfers] == [0.5, 0.5]


def test_servers_send_side_by_side():
    nodes = [receive("a", MIB), receive("b", MIB, OTHER), synthetic.node("Op1", 1, [0, 1])]
    made = profile(nodes, 1.0, senders=(SERVER, OTHER))
    (receiver,) = decide(made, "tac", Cluster()).receivers
    assert {one.sender for one in receiver.transfers} == {SERVER, OTHER}
    assert receiver.lower == 1.0
    assert {one.seconds for one in receiver.predictions} == {2.0}


def test_for_other_clusters():
    nodes = [receive(name, size) for name, size in (("a", 3), ("b", 1), ("c", 1), ("d", 1))]
    made = profile(nodes, bandwidth=1.0)
    section = decide(made, "tac", Cluster(workers=3, servers=2))
    assert [one.task for one in section.receivers] == [f"/job:worker/task:{n}" for n in range(3)]
    placed = {one.tensor: one.sender for one in section.receivers[2].transfers}
    assert placed == {"a": SERVER, "b": OTHER, "c": OTHER, "d": OTHER}


def test_other_workers_have_orders_of_their_own_and_servers_none():
    """A second tower's tensors have other names; a server's receives are gradients."""
    made = profile(first_figure(), 1.0, 1.0)
    (step,) = made.steps
    second, server = "/job:worker/task:1", "/job:ps/task:0"
    tower = [receive("tower1/w", MIB, worker=second), synthetic.node("Op1", 1, [0])]
    gradient = [receive("gradient", MIB, sender=WORKER, worker=server)]
    replace = msgspec.structs.replace
    peers: list[Step] = [
        replace(step, signature="s1", device=device(second), nodes=tuple(tower)),
        replace(step, signature="s2", device=device(server), nodes=tuple(gradient)),
    ]
    section = decide(replace(made, peers=tuple(peers)), "improved", Cluster())
    assert [(one.task, tensors(one)) for one in section.receivers] == [
        (WORKER, ["first", "second"]),
        (second, ["tower1/w"]),
    ]
    assert len(section.receivers) == 2
    # no link of its own was seen: that of its sender's other one stands for it
    assert section.receivers[1].transfers[0].seconds == 1.0


def test_what_workers_send_each_other_is_left_out():
    """The second tower's loss, for the first one's mean: it is computed before it comes."""
    nodes = [
        receive("tower1/loss", 4, sender="/job:worker/task:1"),
        receive("w", MIB),
        synthetic.node("Op1", 1, [0, 1]),
    ]
    (receiver,) = decide(profile(nodes, 1.0), "tac", Cluster(servers=2)).receivers
    assert [(one.tensor, one.sender) for one in receiver.transfers] == [("w", SERVER)]


def test_what_a_server_sends_when_something_has_come_is_left_out():
    done = receive("done", 4)
    assert done.partner is not None
    answer = msgspec.structs.replace(done.partner, answer=True)
    nodes = [receive("w", MIB), msgspec.structs.replace(done, partner=answer)]
    (receiver,) = decide(profile(nodes), "tac", Cluster()).receivers
    assert tensors(receiver) == ["w"]


def test_of_several_graphs_of_a_task_the_heaviest_is_planned():
    made = profile(first_figure(), 1.0, 1.0)
    (step,) = made.steps
    other = msgspec.structs.replace(step, signature="other", nodes=(receive("third", MIB),))
    section = decide(msgspec.structs.replace(made, steps=(step, other)), "tac", Cluster())
    assert [one.signature for one in section.receivers] == [step.signature]


def test_ops_that_wait_for_each_other_are_refused():
    nodes = [receive("w", MIB), synthetic.node("Op1", 1, [0, 2]), synthetic.node("Op2", 1, [1])]
    with pytest.raises(UsageError, match="ops wait for each other"):
        decide(profile(nodes, 1.0), "tac", Cluster())


def test_a_profile_without_transfers_is_refused():
    with pytest.raises(UsageError, match="the profile contains no step that receives tensors"):
        decide(synthetic.network(synthetic.machine(2), layers=1), "improved", Cluster())


def test_an_ops_time_is_the_least_with_as_many_threads_as_the_job_gave_it():
    law = synthetic.Law(0.0, 1.0, 0.0)
    there = synthetic.machine(4)
    made = synthetic.profile(there, [synthetic.op("MatMul", law, there)], {"step": []})
    counts = {time.threads: time.min for time in made.ops[0].times}
    for intra, taken in ((1, 1), (2, 2), (3, max(n for n in counts if n <= 3)), (64, max(counts))):
        own = msgspec.structs.replace(made.settings, intra=intra)
        assert op_seconds(msgspec.structs.replace(made, settings=own)) == [counts[taken]]
    waits = synthetic.op("_Recv", None, there)
    assert op_seconds(msgspec.structs.replace(made, ops=(waits,))) == [0.0]
