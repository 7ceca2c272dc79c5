from __future__ import annotations

from dltune.simulate.networks import Device
from dltune.systems.memory import cudnn
from dltune.systems.memory.model import layered
from dltune.systems.memory.model.layered import layer_step, provisioned, schedule_recomputation

DEVICE = Device(flops=4.29e12, bandwidth=288e9)
STEP = layer_step(cudnn.alexnet(), 100)
STEPS = schedule_recomputation(STEP, "cost", offload=True)


def test_without_room_each_layer_takes_its_plain_time():
    found = provisioned(STEP, STEPS, DEVICE, [0] * len(STEPS))
    plain = layered.layer_seconds(STEP, DEVICE)
    assert all(work.workspace == 0 for work in found)
    for work, (node, _) in zip(found, STEPS, strict=True):
        if not work.passes:
            assert work.seconds == plain[node]


def test_a_gradient_is_two_passes_but_for_the_first_layers():
    found = provisioned(STEP, STEPS, DEVICE, [1 << 40] * len(STEPS))
    work = {STEP.graph.names[one.node]: made for one, made in zip(STEPS, found, strict=True)}
    assert [len(work[name].passes) for name in ("CONV2", "CONV2 backward", "CONV1 backward")] == [
        1,
        2,
        1,
    ]
    assert work["CONV2 backward"].seconds == 2 * work["CONV2"].seconds
    assert work["FC1"].passes == ()


def test_more_room_is_no_slower_and_never_exceeded():
    before = None
    for room in range(0, 1 << 30, 1 << 25):
        found = provisioned(STEP, STEPS, DEVICE, [room] * len(STEPS))
        assert all(work.workspace <= room for work in found)
        total = sum(work.seconds for work in found)
        assert before is None or total <= before
        before = total
