"""Findings on a profile alone: each from figures that speak for it, and none where nothing does."""

from __future__ import annotations

import msgspec
import pytest
from keyed import keyed
from looked import looked
from losing_steps import eager, owned, parts, plain, step, wrong
from norms import Graph
from observations import graphs, host, observation, process, python
from synthetic import machine, node, profile

from dltune.analysis.roofline import analyse
from dltune.analysis.step_parts import wall
from dltune.findings.diagnosis import diagnose
from dltune.findings.evidence import Evidence
from dltune.schemas.diagnosis import Finding
from dltune.schemas.profile import (
    Collective,
    Counters,
    Profile,
    Ratio,
    Samples,
    Settings,
)
from dltune.schemas.settings import Choice

IMAGE = (8, 6, 6, 16)
AXES = (0, 1, 2)


def only(made: Profile) -> Finding:
    (finding,) = wrong(made)
    return finding


@pytest.fixture
def normed() -> Graph:
    """One layer and its gradient, 24 ops of 10 us; the rest takes as long."""
    graph = Graph()
    source = graph.add("conv", "Conv2D", IMAGE, seconds=23e-5)
    inner = graph.norm("layer", source, IMAGE, AXES)
    above = graph.add("relu_grad", "ReluGrad", IMAGE, inner[-1])
    graph.gradient("layer", source, above, IMAGE, AXES)
    return graph


def test_batch_norm_in_pieces(normed):
    made = normed.profile()
    first = wrong(made)[0]
    assert first.try_next == ("batch_norm",)
    assert (
        first.title
        == "batch norm is not fused: 1 layer runs as 24 ops per step, 50% of the op time"
    )
    assert "fused kernels would move" in first.evidence
    assert first.gain is not None
    assert 0 < first.gain.low <= first.gain.high < 0.5


def test_the_gain_is_of_the_wall_time_not_of_the_op_time(normed):
    made = normed.profile()
    whole, part = wrong(made)[0], wrong(parts(made, ops=0.001, python=0.009))
    batch_norm = next(finding for finding in part if finding.try_next == ("batch_norm",))
    assert whole.gain is not None
    assert batch_norm.gain is not None
    assert batch_norm.gain.high == pytest.approx(whole.gain.high / 10)


def test_steps_that_wait_for_their_data():
    made = parts(plain(owned("Relu(float[8])", 1e-3)), ops=0.006, input=0.003, python=0.0003)
    finding = only(made)
    assert finding.try_next == ("input_prefetch", "input_threads")
    assert "32% of the wall time" in finding.title
    assert finding.seconds == pytest.approx(0.003)
    assert finding.gain is not None
    assert (finding.gain.low, finding.gain.high) == (0.0, pytest.approx(3 / 9.3))


def test_python_between_the_steps():
    finding = only(parts(plain(owned("Relu(float[8])", 1e-3)), ops=0.006, python=0.004))
    assert finding.try_next == ("steps_per_execution",)
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.4)


def test_faults_of_ops_cost_what_the_machine_says():
    ops = [keyed("Relu(float[1000000])", seconds={1: 8e-3, 2: 4e-3},
                 counts={"page-faults": 1000.0}, count=3)]  # fmt: skip
    counters = Counters("auto", "software events", ((),), fault_seconds=2e-6)
    made = msgspec.structs.replace(plain(*ops), counters=counters)
    finding = only(made)
    assert finding.try_next == ("allocator",)
    assert finding.title == (
        "the ops of a step cause 3,000 page faults, which take 6 ms of CPU time"
    )
    assert finding.evidence.startswith("a page fault takes 2 us, as measured on this machine")
    assert finding.gain is not None
    # 1 ms on each of two threads, of 4 ms
    assert finding.gain.high == pytest.approx(0.25)
    few = [keyed("Relu(float[1000000])", seconds={2: 4e-3}, counts={"page-faults": 10.0})]
    assert wrong(msgspec.structs.replace(plain(*few), counters=counters)) == []


def test_more_threads_than_the_quota():
    ops = [keyed("Relu(float[1000000])", seconds={1: 4e-3, 2: 5e-3})]
    made = plain(*ops)
    there = msgspec.structs.replace(machine(2), quota=1.5)
    finding = only(msgspec.structs.replace(made, machine=there))
    assert finding.try_next == ("threads",)
    assert "2 threads, more than the quota of 1.5 CPUs" in finding.title
    assert "the ops take 4 ms on 1 and 5 ms on 2 threads" in finding.evidence
    assert "1x1" in {choice.value for choice in finding.apply}
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.2)


def test_more_threads_than_cores():
    ops = [keyed("Relu(float[1000000])", seconds={1: 4e-3, 2: 5e-3})]
    finding = only(plain(*ops, settings=Settings(64, 64)))
    assert "64 threads, more than the 2 cores" in finding.title
    assert finding.gain is None
    assert wrong(plain(*ops)) == []


def test_small_ops():
    ops = [owned("Mul(float[8])", 4e-6, count=400), owned("Conv2D(float[8],float[8])", 4e-3)]
    nodes = [node("Mul", 0) for _ in range(400)] + [node("Conv2D", 1)]
    made = profile(machine(2), ops, {"train": nodes}, span=0.01)
    found = {finding.try_next: finding for finding in wrong(made)}
    finding = found["jit_compile", "xla"]
    assert finding.title.startswith(
        "400 of 401 ops per step are shorter than 20 us; together they take 29% of the"
    )
    assert "`dltune tune --only xla` measures" in (finding.fix or "")


@pytest.mark.parametrize(
    ("ops", "advised"),
    [
        ([("Conv2D(float[8,8],float[8])", 0.5), ("Mul(float[8])", 0.5)], True),
        ([("_FusedMatMul(float[8,8],float[8])", 0.5), ("Mul(float[8])", 0.5)], True),
        ([("_MklNativeConv2D(float[8],float[8])", 0.5), ("MatMul(float[8],float[8])", 0.5)], False),
        ([("Conv2D(float[8,8],float[8])", 0.01), ("Mul(float[8])", 1.0)], False),
        ([("Conv2D(double[8,8],double[8])", 1.0)], False),
        ([], False),
    ],
)
def test_onednn_off(ops, advised):
    found = wrong(plain(*(owned(key, seconds) for key, seconds in ops)))
    found = [finding for finding in found if finding.cause == "onednn-off"]
    assert [finding.try_next for finding in found] == ([("onednn",)] if advised else [])
    assert not advised or "50% of the op time" in found[0].title
    assert not advised or found[0].confidence == "rule"


def test_the_most_costly_comes_first(normed):
    made = parts(normed.profile(), ops=0.005, input=0.001, python=0.004)
    shares = [one.share for one in wrong(made)]
    assert len(shares) >= 3
    assert shares == sorted(shares, reverse=True)


def test_the_ops_when_little_is_lost():
    (found,) = step(ops=0.095, executor=0.002, input=0.001, communication=0.0, python=0.002)
    assert found.title == "the step spends 95% of its wall time in ops (95 ms)"
    assert (found.fix, found.share) == (None, None)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("executor", "small-ops"),
        ("input", "input-wait"),
        ("python", "between-steps"),
    ],
)
def test_the_greatest_loss(name, cause):
    seconds = {"ops": 0.07, "executor": 0.002, "python": 0.001, name: 0.03}
    first = step(**seconds)[0]
    assert first.cause == cause
    assert first.share == pytest.approx(0.03 / sum(seconds.values()))
    assert first.seconds == pytest.approx(0.03)


def test_python_names_its_lines():
    seen = [("train.py:31", 0.3), ("train.py:12 (load)", 0.6), ("odd.py:1", 0.1)]
    (found,) = step(ops=0.05, python=0.05, lines=seen)
    assert (
        found.evidence == "Python was most often at train.py:12 (load) (60%) and train.py:31 (30%)"
    )
    (without,) = step(ops=0.05, python=0.05)
    assert "most often" not in without.evidence


def test_nothing_but_loss():
    assert step(python=0.1)[0].share == 1.0


def test_a_step_without_parts():
    assert step() == ()
    assert step(ops=0.0) == ()


def test_what_dltune_applies_by_itself(normed):
    there = msgspec.structs.replace(machine(2), quota=1.5)
    faults = [keyed("Relu(float[1000000])", seconds={1: 4e-3, 2: 5e-3},
                    counts={"page-faults": 1000.0})]  # fmt: skip
    made = [
        parts(normed.profile(), ops=0.001, executor=0.001, input=0.001, python=0.001),
        msgspec.structs.replace(plain(*faults), machine=there),
        plain(owned("Conv2D(float[8,8],float[8])", 0.5)),
    ]
    assert {str(choice) for one in made for found in wrong(one) for choice in found.apply} == {
        "batch_norm=fused",
        "input_prefetch=auto",
        "allocator=glibc-keep",
        "threads=1x1",
        "onednn=on",
    }


def test_half_precision_without_kernels_for_it():
    convolution = owned("Conv2D(half[16,32,32,32],half[3,3,32,32]){padding=SAME}", 9e-3)
    finding = only(plain(convolution, owned("Relu(float[8,8])", 1e-3)))
    assert finding.cause == "reference-kernel"
    assert finding.title.startswith("90% of the op time is in float16")
    assert "most of this time is in Conv2D" in finding.evidence
    assert finding.share == pytest.approx(0.9 * (1 - 1 / 3))


def recorded(made: Profile, at: float) -> Profile:
    """Its steps take so many times as long while their ops are recorded."""
    counters = Counters("auto", "software events", ((),), overhead=Ratio(10, at, at, at))
    return msgspec.structs.replace(made, counters=counters)


def test_ops_that_are_faster_on_one_thread():
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 1e-4, 2: 2e-4}, count=10)
    made = parts(plain(add), ops=2e-3, executor=2e-3, python=1e-3)
    found = [one for one in wrong(made) if one.cause == "too-many-threads"]
    assert [one.share for one in found] == [pytest.approx((4e-3 - 1e-3) / 5e-3)]
    assert (
        "on one thread, the ops take 1 ms per step; in the job they take 4 ms" in found[0].evidence
    )


def test_threads_of_which_nothing_is_known_hide_none_that_were_measured():
    """Four threads, as TensorFlow has them on two cores of two hyperthreads each."""
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 1e-4, 2: 2e-4}, count=10)
    made = parts(plain(add), ops=2e-3, executor=2e-3, python=1e-3)
    more = msgspec.structs.replace(made.settings, intra=4)
    found = {one.cause: one.share for one in wrong(msgspec.structs.replace(made, settings=more))}
    assert found["threads-over-quota"] is None
    assert "too-many-threads" in found


def test_what_made_some_steps_slower_is_no_threads_fault():
    """Steps of 4.6 ms, of which ops had 3.71 and need 3.36 on one thread: others took 3.9 ms."""
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 3.36e-5, 2: 3.4e-5}, count=100)
    made = recorded(parts(plain(add), ops=3.71e-3, python=0.9e-3), at=1.0)
    for fastest, told in ((4.6e-3, True), (3.9e-3, False)):
        wall = Samples(16, fastest, 4.6e-3, 0.1)
        steps = tuple(msgspec.structs.replace(step, wall=wall) for step in made.steps)
        causes = [one.cause for one in wrong(msgspec.structs.replace(made, steps=steps))]
        assert ("too-many-threads" in causes) is told


def test_what_recording_ops_takes_is_no_threads_fault():
    """DenseNet-121: steps of 154 ms while ops are recorded, of 122 ms else; most of the difference
    is within ops."""
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 1.39e-3, 2: 1.41e-3}, count=100)
    made = parts(plain(add), ops=0.154, executor=0.004, python=0.005)
    for steps, told in (
        (recorded(made, at=1.01), True),
        (recorded(made, at=1.25), False),
        (made, False),  # nobody knows: it may be as much
    ):
        found = wrong(steps)
        assert ("too-many-threads" in [one.cause for one in found]) is told
    made = recorded(made, at=1.01)
    for period, told in ((0.122, False), (0.3, True), (None, True)):
        found = looked(Evidence(observation(graphs=graphs(period=period)), analyse(made)))
        assert ("too-many-threads" in [one.cause for one in found]) is told, "by itself"


@pytest.mark.parametrize(("two", "threads"), [(2e-4, "1x1"), (1e-4, "2x1")])
def test_more_threads_than_cpus_wait_for_one_another(two, threads):
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 1.8e-4, 2: two}, count=10)
    made = analyse(parts(plain(add), ops=1.8e-3, executor=1e-4, python=1e-3))
    crowd = (process(intra=48, cpu=1.2, queued=1.4),)

    def told(**more) -> list[Finding]:
        seen = Evidence(observation(**more), made)
        return [one for one in looked(seen) if one.cause == "too-many-threads"]

    (finding,) = told(processes=crowd)
    assert finding.title.startswith("ops use 48 threads on 2 CPUs")
    assert finding.share == pytest.approx(1.4 / 2.6, rel=0.01)
    assert [choice.value for choice in finding.apply] == [threads]
    assert told(processes=(process(intra=2, cpu=1.2, queued=1.4),)) == []
    assert told(processes=crowd, host=host(quota=1.0, throttled=0.6)) == []


def test_processes_in_each_others_way_make_ops_slow_on_any_threads():
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 2e-4, 2: 2e-4}, count=10)
    made = analyse(parts(plain(add), ops=5e-3))
    four = tuple(process(pid, cpu=0.5, queued=0.7) for pid in range(1, 5))
    crowded = [one.cause for one in looked(Evidence(observation(processes=four), made))]
    assert "crowded-processes" in crowded
    assert "too-many-threads" not in crowded
    assert "too-many-threads" in {one.cause for one in looked(Evidence(observation(), made))}


def test_of_several_threads_the_one_that_others_disturb_is_waited_for():
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 1.4e-4, 2: 1.4e-4}, count=100)
    made = analyse(recorded(parts(plain(add), ops=16.5e-3), at=1.0))
    for others, told in ((0.0, True), (0.16, False)):
        seen = Evidence(observation(host=host(others=others)), made)
        assert ("too-many-threads" in [one.cause for one in looked(seen)]) is told


def test_page_faults_are_no_threads_fault():
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 2e-4, 2: 2e-4}, count=10)
    made = parts(plain(add), ops=3e-3)
    for faults, told in ((0.0, True), (1e7, False)):
        observed = observation(processes=(process(kernel=0.9, faults=faults),))
        causes = [one.cause for one in looked(Evidence(observed, analyse(made)))]
        assert ("too-many-threads" in causes) is told


def test_ops_that_several_threads_make_faster_are_left_alone():
    product = keyed("MatMul(float[8,8],float[8,8])", seconds={1: 2e-4, 2: 1.2e-4}, count=10)
    made = parts(plain(product), ops=4e-3, executor=1e-3, python=1e-3)
    assert not [one for one in wrong(made) if one.cause == "too-many-threads"]


def test_what_several_threads_bring_must_be_something_to_the_step():
    add = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 1.1e-5, 2: 1e-5}, count=10)
    made = parts(plain(add), ops=1e-3, executor=2e-3, python=1e-3)
    assert [one for one in wrong(made) if one.cause == "too-many-threads"]


def test_the_calls_of_steps_that_looks_take_for_steps():
    made = parts(plain(owned("Relu(float[8,8])", 1e-4)), ops=1e-4, python=7e-4, input=2e-4)
    observed = observation(python=python(fit=0.1, saving=0.2))
    shares = {one.cause: one.share for one in looked(Evidence(observed, analyse(made)))}
    assert shares["tiny-steps"] == pytest.approx(0.7 - 0.2)
    assert "sequential-map" not in shares  # 0.2 ms is what it takes to hand an element over


def in_a_row(start: float, *names: str) -> list[tuple[str, float, float]]:
    """Each takes 10 us, 10 us after the one before."""
    return [(name, start + 2e-5 * at, start + 2e-5 * at + 1e-5) for at, name in enumerate(names)]


def test_an_optimizer_that_loops_over_its_tensors():
    forward = ("forward/relu", 0.0, 0.001)
    loop = in_a_row(0.00101, *["optimizer/mul_"] * 10)
    finding = wrong(eager(forward, *loop))[1]
    assert (finding.cause, finding.apply) == (
        "loop-optimizer",
        (Choice("fused_optimizer", "on"),),
    )
    assert finding.title == "the optimizer updates its tensors one by one, with 10 ops per step"
    assert finding.seconds == pytest.approx(2e-4)
    fused = eager(forward, *in_a_row(0.00101, "optimizer/_fused_adam_"))
    # a closure, whose pass computes something without gradients, too
    closed = eager(*in_a_row(0.0, "optimizer/clone"), ("forward/relu", 2e-5, 0.001), *loop)
    assert finding.title in [one.title for one in wrong(closed)]
    other = eager(forward, *loop, name="Optimizer.step#RMSprop.step")
    little = eager(("forward/relu", 0.0, 0.01), *in_a_row(0.01001, *["optimizer/mul_"] * 10))
    every = [one.cause for it in (fused, other, little) for one in wrong(it)]
    assert "loop-optimizer" not in every


def test_ops_that_python_calls_one_by_one():
    ops = in_a_row(0.0, *["forward/relu"] * 100)
    own, calls = sorted(wrong(eager(*ops)), key=lambda one: one.cause)
    assert (own.cause, calls.cause) == ("between-ops", "op-calls")
    assert calls.title == "Python calls 99 ops per step one by one"
    assert calls.seconds == pytest.approx(99e-5)
    assert calls.evidence == "no op runs for 10.0 us, on average, before each call"
    assert own.seconds == pytest.approx(1e-3)
    assert own.evidence == "the longest pause, 1 ms, is between two steps"


def test_python_between_two_ops_is_where_the_looks_found_it():
    made = analyse(eager(("forward/relu", 0.0, 0.004), ("backward/mul", 0.014, 0.019)))
    busy = observation(processes=(process(framework="pytorch"),), python=python(python=0.3))
    (finding,) = looked(Evidence(profile=made, observation=busy))
    assert (finding.cause, finding.share) == ("between-ops", 0.3)
    assert finding.evidence == (
        "the longest pause, 10 ms, is before backward/mul; Python was most often at "
        "train.py:7 (<module>)"
    )
    # steps are half of the watch, and so are its looks at Python
    half = msgspec.structs.replace(busy, graphs=graphs(steps=500))
    shares = {one.cause: one.share for one in looked(Evidence(profile=made, observation=half))}
    assert shares["between-ops"] == pytest.approx(11 / 20)
    calm = observation(processes=(process(framework="pytorch"),), python=python(eager=0.9))
    assert looked(Evidence(profile=made, observation=calm)) == ()


@pytest.mark.parametrize(("looks", "healthy"), [(30, False), (200, True)])
def test_a_job_is_not_healthy_by_a_few_looks(looks, healthy):
    made = analyse(parts(plain(owned("Relu(float[8,8])", 1e-3)), ops=1e-3))
    seen = observation(python=msgspec.structs.replace(python(), looks=looks))
    found = diagnose(Evidence(seen, made), "train.py", 60.0, None, None)
    assert found.healthy is healthy
    assert any("are too few" in one for one in found.unseen) is not healthy


def test_what_a_step_loses_is_a_part_of_the_time_that_is_steps():
    made = analyse(eager(*in_a_row(0.0, *["forward/relu"] * 100)))
    whole = wall(made.profile)
    half = observation(graphs=graphs(steps=round(10 / whole)))
    found = diagnose(Evidence(profile=made, observation=half), "train.py", 60.0, None, None)
    shares = {one.cause: one.share for one in found.findings}
    assert shares["beside-steps"] == pytest.approx(0.5, abs=0.01)
    assert shares["op-calls"] == pytest.approx(0.5 * 99e-5 / whole, rel=0.01)


def test_a_rank_has_its_part_of_the_cores():
    made = analyse(plain(owned("Conv2D(float[8,8],float[8])", 0.5)))
    cores = {}
    for ranks in (None, 2, 3):
        seen = observation(processes=(process(ranks=ranks, intra=1),))
        found = diagnose(Evidence(profile=made, observation=seen), "train.py", 60.0, None, None)
        cores[ranks] = found.step and found.step.cores
    assert cores == {None: 2, 2: 1, 3: 1}


def test_a_limit_is_that_of_the_cores_that_are_paid_for():
    made = plain(owned("Conv2D(float[8,8],float[8])", 0.5))
    of_many = msgspec.structs.replace(made, machine=msgspec.structs.replace(machine(64), quota=2.5))
    found = diagnose(Evidence(profile=analyse(of_many)), "train.py", 60.0, None, None)
    assert found.step is not None
    assert found.step.cores == 2


def test_fewer_threads_than_there_are_cores_for():
    times = {1: 4e-3, 2: 2.1e-3, 3: 1.5e-3, 4: 1.2e-3}
    multiply = keyed("aten::mm(float[512,512],float[512,512])", seconds=times, count=10)
    made = parts(plain(multiply, settings=Settings(1, 1)), ops=40e-3, python=1e-3)
    four = msgspec.structs.replace(made, machine=machine(4))

    def told(profile: Profile, **more: object) -> list[Finding]:
        found = looked(Evidence(observation(**more) if more else None, analyse(profile)))
        return [one for one in found if one.cause == "too-few-threads"]

    (finding,) = told(four)
    assert finding.title == "ops use 1 thread, but there are cores for 4"
    assert finding.seconds == pytest.approx(28e-3)
    assert [choice.value for choice in finding.apply] == ["4x1"]
    quota = msgspec.structs.replace(four, machine=msgspec.structs.replace(machine(4), quota=2.5))
    assert [one.apply[0].value for one in told(quota)] == ["2x1"]
    both = msgspec.structs.replace(four, settings=Settings(4, 1))
    assert told(both) == []
    # in the job they take half of what they took while they were measured, then four at a time
    faster = parts(plain(multiply, settings=Settings(1, 1)), ops=20e-3, python=1e-3)
    (finding,) = told(msgspec.structs.replace(faster, machine=machine(4)))
    assert finding.seconds == pytest.approx(14e-3)
    beside = parts(plain(multiply, settings=Settings(1, 4)), ops=12e-3, python=1e-3)
    assert told(msgspec.structs.replace(beside, machine=machine(4))) == []
    # not measured, as where the climb had ended before
    assert [one.apply[0].value for one in told(msgspec.structs.replace(made, machine=machine(9)))]


@pytest.mark.parametrize(
    ("processes", "threads"),
    [
        ([process(1, cpus=(0, 1, 2, 3), intra=1, cpu=1.0)], ["4x1"]),
        # a worker of a DataLoader has one of the cores
        (
            [
                process(1, cpus=(0, 1, 2, 3), intra=1, cpu=1.0),
                process(2, cpus=(0, 1, 2, 3), intra=None, cpu=0.9),
            ],
            ["3x1"],
        ),
        # ranks have a part each
        (
            [
                process(1, cpus=(0, 1, 2, 3), intra=1, cpu=1.0, ranks=2, framework="pytorch"),
                process(2, cpus=(0, 1, 2, 3), intra=1, cpu=0.9, ranks=2, framework="pytorch"),
            ],
            ["2x1"],
        ),
        ([process(1, cpus=(0,), intra=1, cpu=1.0)], []),
    ],
)
def test_threads_for_the_cores_that_are_left(processes, threads):
    times = {1: 4e-3, 2: 2.1e-3, 3: 1.5e-3, 4: 1.2e-3}
    multiply = keyed("aten::mm(float[512,512],float[512,512])", seconds=times, count=10)
    made = parts(plain(multiply, settings=Settings(1, 1)), ops=40e-3, python=1e-3)
    made = msgspec.structs.replace(made, machine=machine(4))
    seen = Evidence(observation(processes=tuple(processes)), analyse(made))
    found = [one for one in looked(seen) if one.cause == "too-few-threads"]
    assert [one.apply[0].value for one in found] == threads
    assert all(
        ("torchrun" in str(one.fix)) == (len(threads) == 1 and threads[0] == "2x1") for one in found
    )


def test_double_precision_in_pytorch():
    product = ("forward/mm", 0.0, 0.008)
    made = eager(product, ("forward/relu", 0.008, 0.01))
    double = keyed("aten::mm(double[64,512],double[512,512])", seconds={1: 8e-3})
    ops = (msgspec.structs.replace(double, own=8e-3), *made.ops[1:])
    (finding,) = [
        one for one in wrong(msgspec.structs.replace(made, ops=ops)) if one.cause == "float64"
    ]
    assert finding.title == "ops in double precision (float64) take 80% of the op time"
    assert "torch.from_numpy" in finding.evidence
    assert "torch.set_default_dtype" in str(finding.fix)


def test_threads_that_bring_nothing_are_not_missing():
    """What the executor needs between ops is none of theirs, nor what dltune does not control."""
    flat = keyed("AddV2(float[8,8],float[8,8])", seconds={1: 40e-6, 2: 42e-6}, count=100)
    between = parts(plain(flat, settings=Settings(1, 1)), ops=4e-3, executor=2e-3, python=1e-3)
    other = owned("Horrible(float[8,8])", 4e-3)
    beside = parts(plain(flat, other, settings=Settings(1, 1)), ops=8e-3, python=1e-3)
    for made in (between, beside):
        assert "too-few-threads" not in [one.cause for one in wrong(made)]


def test_ranks_that_were_not_looked_at_may_have_no_cores_left():
    multiply = keyed("aten::mm(float[512,512])", seconds={1: 4e-3, 2: 2.1e-3}, count=10)
    made = parts(plain(multiply, settings=Settings(1, 1)), ops=40e-3, python=1e-3)
    assert "too-few-threads" in [one.cause for one in wrong(made)]
    collective = Collective(0, 1 << 20, Samples(9, 4e-3, 5e-3, 0.1))
    step = msgspec.structs.replace(made.steps[0], collectives=(collective,))
    rank = msgspec.structs.replace(made, steps=(step,))
    assert "too-few-threads" not in [one.cause for one in wrong(rank)]
