from __future__ import annotations

import dataclasses

import msgspec
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.plan.plan import merge_section, plan_faults
from dltune.plan.threads.decide import choose
from dltune.schemas.profile import (
    Part,
    Profile,
    Samples,
    Settings,
    Tried,
)
from dltune.simulate.machine_transfer import Law, transferred
from dltune.simulate.workload import calibrated, workload
from dltune.system.topology import builtin_machine

KNL = builtin_machine("knl-7250")


def planned(profile, strategy="auto", **more):
    made, _ = calibrated(profile)
    return made, choose(made, strategy, **more)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([1, 2]),
    st.integers(1, 3),
    st.sampled_from([None, 1.5, 4.0]),
    st.integers(0, 99),
    st.booleans(),
)
def test_a_plan_is_whole_and_never_slower_than_the_best_uniform_setting(
    cores, hardware, branches, optimum, seed, bitwise
) -> None:
    there = synthetic.machine(cores, hardware=hardware)
    profile = synthetic.network(
        there, layers=4, branches=branches, optimum=optimum, seed=seed, span=0.05
    )
    made, decision = planned(profile, bitwise=bitwise)
    section = decision.threads(made)
    assert plan_faults(merge_section(None, "threads", section, there, profile)) == []
    by_name = {p.setting: p for p in section.predictions}
    best = min(p.seconds for n, p in by_name.items() if n.startswith("uniform"))
    assert by_name[section.strategy].seconds <= best * (1 + 1e-9)
    assert by_name["recommended"].speedup == 1.0
    if bitwise:
        assert {op.threads for op in section.ops} <= {profile.settings.intra}
        if section.strategy.startswith("uniform"):
            assert section.uniform.intra == profile.settings.intra


def test_ops_with_small_optima_side_by_side_co_run() -> None:
    profile = synthetic.network(
        KNL, layers=6, branches=6, optimum=11, seconds=0.05, interval=1, small=1
    )
    made, decision = planned(profile)
    by_name = {option.setting: option for option in decision.options}
    both = by_name["per-type+co-run"]
    assert by_name["per-type"].seconds < by_name["recommended"].seconds
    assert both.seconds < 0.6 * by_name["per-type"].seconds
    assert both.outcome.corunning > 1.5
    section = decision.threads(made)
    assert section.corun
    assert section.strategy.startswith("per-type+co-run")


def test_without_strategy_3_ops_run_one_at_a_time_on_two_sockets_too() -> None:
    """Each is on the first cores of its number of threads: two at a time would share them."""
    there = synthetic.machine(8, sockets=2)
    profile = synthetic.network(there, layers=3, branches=3, optimum=2, span=0.05)
    made, decision = planned(profile, "per-type")
    option = next(one for one in decision.options if one.setting == "per-type")
    assert option.uniform.inter == 1
    assert option.outcome.corunning <= 1.0
    assert decision.threads(made).uniform.inter == 1


def test_hyper_threads_take_up_small_ops_beside_one_that_needs_all_cores() -> None:
    """One op that scales to all 68 cores, and many short serial ones that are ready beside it."""
    ops = [
        synthetic.op("Conv2D", Law(0.0, 68.0, 0.0), KNL, key="big"),
        synthetic.op("Sum", Law(0.01, 0.0, 0.0), KNL, key="short"),
    ]
    nodes = [synthetic.node("big_0", 0)] + [synthetic.node(f"s_{i}", 1) for i in range(20)]
    _, decision = planned(synthetic.profile(KNL, ops, {"train": nodes}))
    by_name = {option.setting: option for option in decision.options}
    assert by_name["per-type+co-run+smt"].seconds < by_name["per-type+co-run"].seconds
    assert by_name["per-type+co-run+smt"].hyperthreads


def test_a_strategy_asked_for_is_taken_with_a_remark() -> None:
    profile = synthetic.network(synthetic.machine(2), layers=4, optimum=None, span=0.05)
    made, decision = planned(profile, "per-type+co-run")
    assert decision.threads(made).strategy == "per-type+co-run"
    if decision.chosen.seconds > decision.best_uniform.seconds:
        assert any("as requested" in remark for remark in decision.remarks)


def test_strategy_4_without_hardware_threads_is_refused_with_the_reason() -> None:
    profile = synthetic.network(synthetic.machine(2), layers=2)
    with pytest.raises(UsageError, match="no core of synthetic offers"):
        planned(profile, "per-type+co-run+smt")


def test_bitwise_refuses_strategies_that_change_thread_counts() -> None:
    profile = synthetic.network(synthetic.machine(2), layers=2)
    with pytest.raises(UsageError, match="--bitwise forbids"):
        planned(profile, "per-type", bitwise=True)


def test_calibration_makes_the_job_s_own_run_take_its_measured_time() -> None:
    there = synthetic.machine(2)
    for settings_ in (Settings(2, 1), Settings(2, 2), Settings(2, 64)):
        plain = synthetic.network(there, settings=settings_)
        free = workload(plain).uniform(settings_.intra, settings_.inter).seconds
        for factor in (0.5, 1.0, 1.01, 3.0):
            profile = synthetic.network(
                there, settings=settings_, span=free * factor, between=0.125
            )
            made, calibration = calibrated(profile)
            found = made.uniform(settings_.intra, settings_.inter)
            assert found.seconds == pytest.approx(free * factor + 0.125, rel=1e-3)
            assert 0 <= calibration.overhead <= 10e-6
            assert (calibration.scale == 1.0) == (factor in (1.0, 1.01))
            assert calibration.doubtful == (factor in (0.5, 3.0))


def test_a_run_whose_threads_wait_for_one_another_calibrates_nothing() -> None:
    """Measured: the ResNet of the demo takes 203 ms with 64 threads and 77 ms with 2; tied to the
    first, the second was predicted as slow."""
    there = synthetic.machine(2)
    free = workload(synthetic.network(there)).uniform(2, 1).seconds
    profile = synthetic.network(there, settings=Settings(64, 64), span=3 * free)
    made, calibration = calibrated(profile)
    assert made.uniform(2, 1).seconds == pytest.approx(free)
    assert not calibration.doubtful


def test_ops_side_by_side_lose_to_each_other() -> None:
    plain = synthetic.network(synthetic.machine(2), branches=2, settings=Settings(2, 2), span=0.2)
    made, _ = calibrated(plain)
    free = dataclasses.replace(made, crowding=1.0)
    assert made.uniform(1, 2).seconds > free.uniform(1, 2).seconds
    assert (
        choose(made, "per-op+co-run").chosen.seconds > choose(free, "per-op+co-run").chosen.seconds
    )
    # what runs one after the other does not
    assert made.uniform(2, 1).seconds == pytest.approx(free.uniform(2, 1).seconds)


def test_sixty_four_threads_on_two_cores_are_planned_down() -> None:
    there = synthetic.machine(2)
    made, decision = planned(synthetic.network(there, settings=Settings(64, 64), span=0.2))
    assert decision.best_uniform.uniform.intra <= 2
    assert all(op.threads <= 2 for op in decision.threads(made).ops)


def test_several_steps_follow_one_another() -> None:
    there = synthetic.machine(2)
    ops = [synthetic.op("Conv2D", Law(0.0, 1.0, 0.0), there)]
    graphs = {name: [synthetic.node("c_0", 0)] for name in ("generator", "discriminator")}
    made = workload(synthetic.profile(there, ops, graphs))
    assert made.uniform(2, 2).seconds == pytest.approx(1.0)


def test_loops_run_as_often_as_they_did() -> None:
    there = synthetic.machine(2)
    ops = [synthetic.op("MatMul", Law(0.0, 1.0, 0.0), there)]
    nodes = [
        synthetic.node("Enter_0", None),
        synthetic.node("Merge_1", None, [0, 3]),
        synthetic.node("MatMul_2", 0, [1], repeats=10.0),
        synthetic.node("NextIteration_3", None, [2]),
    ]
    made = workload(synthetic.profile(there, ops, {"train": nodes}))
    assert made.uniform(1, 1).seconds == pytest.approx(10.0)


def test_a_cycle_that_is_no_loop_is_named() -> None:
    there = synthetic.machine(2)
    ops = [synthetic.op("MatMul", Law(0.0, 1.0, 0.0), there)]
    nodes = [synthetic.node("a_0", 0, [1]), synthetic.node("b_1", 0, [0])]
    with pytest.raises(UsageError, match="2 ops wait for each other: a_0, b_1"):
        workload(synthetic.profile(there, ops, {"train": nodes}))


def test_an_op_that_is_not_controlled_takes_its_time_but_no_core() -> None:
    there = synthetic.machine(1)
    ops = [
        synthetic.op("Conv2D", Law(0.0, 2e-6, 0.0), there),
        synthetic.op("IteratorGetNext", None, there),
    ]
    nodes = [synthetic.node("a_0", 0), synthetic.node("b_1", 1)]
    made = workload(synthetic.profile(there, ops, {"train": nodes}))
    assert made.uniform(1, 1).seconds == pytest.approx(2e-6)


def with_other_shapes(one: float, two: float, spread: float) -> Profile:
    """Of a step's 10 ms on two threads, 9 are of an op of which no other run had the same shapes.
    All ops of a step took `one` and `two` seconds on so many threads, with that spread."""
    there = synthetic.machine(2)
    steady = synthetic.op("Relu", Law(1e-3, 0.0, 0.0), there)
    other = msgspec.structs.replace(synthetic.op("Conv2D", None, there), own=9e-3)
    nodes = [synthetic.node("Relu_1", 0), synthetic.node("Conv2D_1", 1)]
    made = synthetic.profile(there, [steady, other], {"train": nodes})
    tried = tuple(
        Tried(threads, placement, Samples(8, seconds, seconds, spread))
        for threads, placement, seconds in ((1, "spread", one), (2, "shared", two))
    )
    (step,) = made.steps
    step = msgspec.structs.replace(step, parts=(Part("ops", 0.01),), tried=tried)
    two_threads = msgspec.structs.replace(made.settings, intra=2, inter=1)
    pytorch = msgspec.structs.replace(made.framework, name="pytorch")
    return msgspec.structs.replace(made, steps=(step,), settings=two_threads, framework=pytorch)


def test_ops_of_other_shapes_at_each_step_take_what_the_others_leave() -> None:
    made = workload(with_other_shapes(0.019, 0.01, 0.05))
    assert made.varying == 0.05
    assert [made.serial(0), made.serial(1)] == pytest.approx([1e-3, 18e-3])
    assert made.uniform(2, 1).seconds == pytest.approx(10e-3)
    (remark,) = made.remarks
    assert remark.startswith("90% of the op time is in ops whose shapes change at each step")


def test_kernels_that_torch_compiled_keep_their_threads_then() -> None:
    made = with_other_shapes(0.019, 0.01, 0.05)
    compiled = synthetic.op("graph_0_cpp_fused_add_1", None, synthetic.machine(2))
    kernel = msgspec.structs.replace(compiled, own=5e-4)
    (step,) = made.steps
    step = msgspec.structs.replace(step, nodes=(*step.nodes, synthetic.node("kernel_1", 2)))
    found = workload(msgspec.structs.replace(made, ops=(*made.ops, kernel), steps=(step,)))
    assert found.varying == 0.05
    assert [curve is None for curve in found.curves] == [False, False, True]


@pytest.mark.parametrize(
    ("one", "spread", "chosen"),
    [(0.006, 0.05, "uniform 1x"), (0.009, 0.3, "uniform 2x1"), (0.02, 0.05, "uniform 2x1")],
)
def test_only_a_clear_difference_gives_such_ops_other_threads(one, spread, chosen) -> None:
    _, decision = planned(with_other_shapes(one, 0.01, spread))
    assert decision.chosen.setting.startswith(chosen)
    assert all(not option.setting.startswith("per-") for option in decision.options)


def test_a_profile_without_samples_is_refused() -> None:
    there = synthetic.machine(2)
    ops = [synthetic.op("Conv2D", None, there)]
    profile = synthetic.profile(there, ops, {"train": [synthetic.node("a_0", 0)]}, partial="killed")
    with pytest.raises(UsageError, match=r"no op times by thread count.*incomplete: killed"):
        workload(profile)
    with pytest.raises(UsageError, match="no training step"):
        workload(synthetic.profile(there, ops, {}))


def test_another_machine_is_planned_for_by_the_stated_law() -> None:
    made, _ = calibrated(synthetic.network(synthetic.machine(2)))
    bigger = synthetic.machine(16, name="bigger")
    there = transferred(made, bigger)
    assert there.uniform(16, 1).seconds < made.uniform(2, 1).seconds
    assert "assumes that a core of bigger is as fast" in there.remarks[0]
    fewer = transferred(made, synthetic.machine(1))
    assert fewer.remarks == ()
