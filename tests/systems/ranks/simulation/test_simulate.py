"""The simulation of ranks against a slow oracle, and the properties every outcome must have."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_ranks import Oracle, Told

from dltune.systems.ranks.simulation.job import (
    GLOO,
    JOIN,
    MPI,
    ORIGINAL,
    Job,
    Method,
    Network,
    Phase,
    Pool,
    Quantiles,
    Update,
    Waiting,
    constant,
    cut,
    fused,
    measured,
    phases,
)
from dltune.systems.ranks.simulation.simulate import Outcome, simulate

GS = Method("global-sleep", agree_every=1)
CALM = Network(latency=10e-6, bandwidth=1e9)


def job(**changed: object) -> Job:
    """Four ranks on cores of their own, ten tensors in three phases; nothing by chance."""
    base = Job(
        ranks=4,
        pool=Pool(1, 4),
        tensors=(1_000_000,) * 10,
        phases=(
            Phase(0.004, 2, (8, 9)),
            Phase(0.002, 2, (4, 5, 6, 7)),
            Phase(0.003, 2, (0, 1, 2, 3)),
        ),
        network=CALM,
        wake=constant(0.0),
        wake_busy=constant(0.0),
    )
    return dataclasses.replace(base, **changed)  # type: ignore[arg-type]


def methods(of: Job) -> tuple[Method, ...]:
    own = of.pool.cores / 4
    bins = fused(of)
    nbcs = Method("non-blocking", between_tests=50e-6)
    scp = Method("core-partition", reserved=own)
    groups = Method("ordered-bins", bins=bins)
    return (
        ORIGINAL,
        GS,
        Method("global-sleep", agree_every=3),
        nbcs,
        scp,
        dataclasses.replace(scp, input_cores=own),
        Method("ordered-bins", bins=bins, synchronized=False),
        groups,
        Method(
            "core-partition+ordered-bins",
            reserved=own,
            input_cores=own,
            bins=bins,
            synchronized=False,
        ),
        *(
            dataclasses.replace(method, rest=rest)
            for method in (ORIGINAL, nbcs, scp, groups)
            for rest in (0.002, 0.05)
        ),
    )


times = st.floats(0, 0.02).map(lambda value: round(value, 6))


@st.composite
def quantiles(draw: st.DrawFn, low: float, high: float) -> Quantiles:
    values = sorted(draw(st.lists(st.floats(low, high), min_size=3, max_size=3)))
    return Quantiles(tuple(zip((0.0, 0.9, 1.0), values, strict=True)))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    pool = draw(st.integers(1, 3))
    tensors = draw(st.integers(1, 6))
    parts = draw(st.integers(1, 3))
    placed: list[list[int]] = [[] for _ in range(parts)]
    for tensor in range(tensors):
        placed[draw(st.integers(0, parts - 1))].append(tensor)
    return Job(
        ranks=pool * draw(st.integers(1, 3)),
        pool=Pool(pool, draw(st.sampled_from((1.0, 2.0, 7.0)))),
        tensors=tuple(draw(st.integers(0, 4_000_000)) for _ in range(tensors)),
        phases=tuple(
            Phase(draw(times), draw(st.sampled_from((0.0, 1.0, 2.0))), tuple(t)) for t in placed
        ),
        network=draw(st.sampled_from((CALM, Network(5e-6, 5e9, "tree", copy=4e9, fixed=1e-5)))),
        wake=draw(quantiles(0, 1e-3)),
        wake_busy=draw(quantiles(0, 0.02)),
        cycle_time=draw(st.sampled_from((2e-4, 1e-3, 5e-3))),
        fusion_threshold=draw(st.sampled_from((0, 3_000_000, 128 << 20))),
        cache_capacity=draw(st.sampled_from((0, 2, 1024))),
        answer=draw(st.none() | quantiles(0, 1e-3)),
        answer_busy=draw(st.none() | quantiles(0, 5e-3)),
        jitter=draw(quantiles(0.5, 2)),
        input_seconds=draw(st.sampled_from((0.0, 0.008))),
        input_threads=draw(st.sampled_from((1.0, 3.0))),
        waiting=draw(st.sampled_from((MPI, GLOO, Waiting(0.2, 1.0, wakes=False)))),
        offloaded=draw(st.booleans()),
        updates=tuple(
            Update(draw(times), draw(st.sampled_from((0.0, 1.0, 2.0))), tuple(waits))
            for waits in draw(
                st.lists(st.sets(st.integers(0, tensors - 1), min_size=1), max_size=4)
            )
        ),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Job, Method]:
    one = draw(jobs())
    return one, draw(st.sampled_from(methods(one)))


def both(one: Job, method: Method, steps: int, warmup: int, seed: int) -> tuple[Outcome, Told]:
    return (
        simulate(one, method, steps=steps, warmup=warmup, seed=seed),
        Oracle(one, method, steps, warmup, seed).run(),
    )


@settings(deadline=None, max_examples=120)
@given(cases(), st.integers(1, 4), st.integers(0, 2), st.integers(0, 2**64 - 1))
def test_the_engine_does_what_the_oracle_does(
    case: tuple[Job, Method], steps: int, warmup: int, seed: int
) -> None:
    outcome, told = both(*case, steps, warmup, seed)
    moments = [0.0, *told.ends][warmup:]
    assert outcome.steps == tuple(b - a for a, b in itertools.pairwise(moments))
    assert (outcome.cycles, outcome.empty) == (told.cycles, told.empty)
    assert (outcome.batches, outcome.sleeps) == (told.batches, told.sleeps)
    assert outcome.worst_oversleep == told.worst
    ranks = case[0].ranks
    for mine, theirs in (
        (outcome.compute, told.compute / steps / ranks),
        (outcome.slowest, told.slowest / steps),
        (outcome.transfer, told.transfer / steps),
        (outcome.background * sum(outcome.steps), told.background / ranks),
        (outcome.oversleep * outcome.sleeps, told.oversleep),
    ):
        assert mine == pytest.approx(theirs, rel=1e-12, abs=1e-15)


@settings(deadline=None, max_examples=60)
@given(cases(), st.integers(0, 2**64 - 1))
def test_nothing_travels_before_all_ranks_have_it_and_everything_does_once_a_step(
    case: tuple[Job, Method], seed: int
) -> None:
    one, method = case
    told = Oracle(one, method, 3, 0, seed).run()
    sent: list[dict[int, float]] = [{}]
    last = 0.0
    for begin, end, tensors in told.sent:
        assert begin >= last - 1e-12  # one after another
        last = end
        if len(sent[-1]) == len(one.tensors):
            sent.append({})
        for tensor in tensors:
            assert tensor not in sent[-1]
            sent[-1][tensor] = begin
    assert [len(step) for step in sent] == [len(one.tensors)] * 3
    for step, ready in zip(sent, told.ready, strict=False):
        assert all(step[tensor] >= ready[tensor] for tensor in step)


@settings(deadline=None, max_examples=60)
@given(cases(), st.integers(0, 2**64 - 1))
def test_a_step_takes_at_least_its_computing_and_its_transfers(
    case: tuple[Job, Method], seed: int
) -> None:
    one, method = case
    outcome = simulate(one, method, steps=3, warmup=0, seed=seed)
    least = one.jitter.points[0][1] * sum(
        phase.seconds for phase in one.phases[: _last_phase(one) + 1]
    )
    # from the second step on, what the one before left to compute comes first
    updates = one.jitter.points[0][1] * sum(update.seconds for update in one.updates)
    for step in outcome.steps:
        assert step >= least - 1e-12
    assert outcome.steps[-1] + outcome.steps[-2] >= 2 * least + updates - 1e-12
    assert outcome.seconds >= outcome.transfer - 1e-12
    assert 0 <= outcome.background <= 1 + 1e-9
    assert outcome.compute <= outcome.slowest + 1e-12 <= outcome.seconds + 2e-12


def _last_phase(one: Job) -> int:
    return max(k for k, phase in enumerate(one.phases) if phase.tensors)


@settings(deadline=None, max_examples=30)
@given(cases(), st.integers(0, 2**64 - 1))
def test_a_seed_gives_the_same_again(case: tuple[Job, Method], seed: int) -> None:
    first = simulate(*case, steps=2, seed=seed, drawn=2)
    assert simulate(*case, steps=2, seed=seed, drawn=2) == first
    assert simulate(*case, steps=2, seed=seed) == dataclasses.replace(first, slices=())


def test_without_delays_and_contention_all_methods_agree() -> None:
    one = job(
        cycle_time=1e-5,  # without any length, a cycle would pass no time
        cycle_seconds=0.0,
        request=0.0,
        test=0.0,
        sync=0.0,
        network=Network(0.0, 1e9),
        phases=(Phase(0.004, 2, tuple(range(10))),),
    )
    expected = 0.004 + one.network.per_byte(4) * 10_000_000
    for method in methods(one):
        outcome = simulate(one, method, steps=5, seed=1)
        assert outcome.seconds == pytest.approx(expected, abs=1e-4), method.name


def test_topo_wakes_once_a_bin_and_sends_the_same_bins_every_step() -> None:
    one = job()
    outcome = simulate(
        one, Method("ordered-bins", bins=fused(one), synchronized=False), steps=4, seed=1
    )
    assert outcome.cycles == outcome.batches == 4 * 3
    assert outcome.empty == 0


def test_a_rank_that_oversleeps_keeps_all_others_spinning() -> None:
    """Fig. 6.9: the wait for a late rank costs the others a core, and GS ends it at once."""
    rarely = Quantiles(((0.0, 0.0), (0.99, 0.0), (1.0, 0.01)))
    small = (1000,) * 10
    one = job(wake=rarely, wake_busy=rarely, cycle_time=5e-3, tensors=small, pool=Pool(1, 7))
    original, global_sleep = (simulate(one, method, steps=200, seed=3) for method in (ORIGINAL, GS))
    assert original.worst_oversleep > 5e-3
    assert original.background > 0.5  # all but the one that was late, for good
    assert global_sleep.background < 0.1
    calm = dataclasses.replace(one, wake=constant(0.0), wake_busy=constant(0.0))
    assert simulate(calm, ORIGINAL, steps=200, seed=3).background < 0.1


def test_a_thread_that_rests_wakes_for_tensors_and_is_not_late() -> None:
    calm = job()
    for method in (ORIGINAL, Method("ordered-bins", bins=fused(calm))):
        plain = simulate(calm, method, steps=20, seed=1)
        rested = simulate(calm, dataclasses.replace(method, rest=0.05), steps=20, seed=1)
        assert rested.cycles < 0.7 * plain.cycles
        assert rested.batches == plain.batches
        # a tensor that ends the rest of a long cycle travels one synchronisation later
        assert rested.seconds <= plain.seconds + rested.batches / 20 * 50e-6


def test_spinning_slows_computing_and_own_cores_or_tests_end_that() -> None:
    late = Quantiles(((0.0, 0.0), (0.5, 2e-3), (1.0, 5e-3)))
    one = job(pool=Pool(1, 2), wake=late, wake_busy=late)
    original = simulate(one, ORIGINAL, steps=20, seed=5)
    tested = simulate(one, Method("non-blocking", between_tests=30e-6), steps=20, seed=5)
    apart = simulate(
        dataclasses.replace(one, pool=Pool(1, 3)),
        Method("core-partition", reserved=1),
        steps=20,
        seed=5,
    )
    assert original.compute > 1.1 * 0.009
    assert tested.compute == pytest.approx(0.009, rel=0.05)
    assert apart.compute == pytest.approx(0.009, rel=0.01)
    assert tested.background < original.background


def test_fusion_stops_at_the_threshold() -> None:
    one = job(
        phases=(Phase(0.004, 2, tuple(range(10))),), fusion_threshold=3_000_000, cycle_time=1e-4
    )
    assert simulate(one, ORIGINAL, steps=2, seed=1).batches_per_step == 4
    assert [len(tensors) for tensors in fused(one)] == [3, 3, 3, 1]


def test_requests_that_are_not_cached_cost_the_coordinator() -> None:
    cached, evicted, none = (
        simulate(job(cache_capacity=size, request=1e-4), ORIGINAL, steps=3, seed=1)
        for size in (1024, 9, 0)
    )
    asked = 4 * 10 * 1e-4
    assert evicted.seconds >= cached.seconds + asked / 2
    assert none.seconds >= cached.seconds + asked / 2


def test_a_step_waits_for_its_batch() -> None:
    outcome = simulate(job(input_seconds=0.05, input_threads=1), ORIGINAL, steps=3, seed=1)
    assert outcome.seconds == pytest.approx(0.05, rel=0.01)


def test_updates_overlap_with_the_transfers_of_others() -> None:
    """One of 10 ms for each tensor, which travels 15 ms: the last one's alone is not hidden."""
    updates = tuple(Update(0.01, 1, (tensor,)) for tensor in range(10))
    network = Network(0.0, 1e8)
    one = job(
        phases=(Phase(0.004, 1, tuple(range(10))),),
        updates=updates,
        network=network,
        cycle_time=1e-4,
    )
    together = simulate(one, Method("one", bins=(tuple(range(10)),)), steps=3, seed=1)
    apart = simulate(one, Method("ten", bins=tuple((t,) for t in range(10))), steps=3, seed=1)
    assert together.seconds == pytest.approx(0.004 + 0.15 + 0.1, abs=2e-3)
    assert apart.seconds == pytest.approx(0.004 + 0.15 + 0.01, abs=2e-3)


def test_a_tensor_in_pieces_is_there_with_the_last_of_them() -> None:
    """What waits for it begins then, and putting it together takes a moment."""
    updates = (Update(0.01, 1, (0, 1)), Update(0.01, 1, (1,)))
    whole = job(tensors=(10**6,) * 10, updates=updates)
    found = cut(whole, {1: (400_000, 600_000)})
    assert found.tensors == (10**6, 400_000, 600_000, *(10**6,) * 8)
    assert [phase.tensors for phase in found.phases] == [(9, 10), (5, 6, 7, 8), (0, 1, 2, 3, 4)]
    assert [update.tensors for update in found.updates] == [(0, 1, 2), (1, 2), (1, 2)]
    assert found.updates[-1].seconds == pytest.approx(JOIN * 10**6)
    assert cut(whole, {}) == whole


def test_slices_are_of_the_drawn_ranks_and_never_overlap_on_one_thread() -> None:
    rarely = Quantiles(((0.0, 1e-5), (0.9, 1e-4), (1.0, 0.01)))
    one = job(wake=rarely, input_seconds=0.003, input_threads=1)
    slices = simulate(one, ORIGINAL, steps=3, seed=2, drawn=2).slices
    assert {piece.rank for piece in slices} == {0, 1}
    for rank in (0, 1):
        thread = sorted(
            (s.start, s.end)
            for s in slices
            if s.rank == rank and s.doing not in ("compute", "input")
        )
        assert thread
        assert all(start < end for start, end in thread)
        assert all(a[1] <= b[0] + 1e-12 for a, b in itertools.pairwise(thread))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ranks": 3, "pool": Pool(2, 4)}, "do not fill pools"),
        ({"tensors": (1,) * 9}, "each tensor"),
        ({"phases": (Phase(-1, 1, tuple(range(10))),)}, "no negative time"),
        ({"pool": Pool(1, 0)}, "has cores"),
        ({"cycle_time": math.inf}, "finite"),
        ({"updates": (Update(0.1, 1, ()),)}, "waits for tensors"),
        ({"updates": (Update(0.1, 1, (10,)),)}, "waits for tensors"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        job(**changed)


@pytest.mark.parametrize(
    "method",
    [
        Method("core-partition", reserved=4),
        Method("ordered-bins", bins=((0, 1),), synchronized=False),
        Method("ordered-bins", bins=(tuple(range(10)), ()), synchronized=False),
    ],
)
def test_a_method_that_does_not_fit_is_refused(method: Method) -> None:
    with pytest.raises(ValueError, match=r"reserved leave none|each tensor once"):
        simulate(job(), method, steps=1, seed=0)


def test_phases_from_measured_times() -> None:
    made = phases([0.3, 0.1, 0.3], threads=2, before=0.05, end=0.4)
    assert [phase.tensors for phase in made] == [(1,), (0, 2), ()]
    assert [phase.seconds for phase in made] == pytest.approx([0.15, 0.2, 0.1])


def test_quantiles_of_measured_values() -> None:
    found = measured([float(i) for i in range(101)])
    assert dict(found.points)[0.5] == 50
    assert found.points[-1] == (1.0, 100.0)
    assert found.mean == pytest.approx(50, abs=0.5)
    with pytest.raises(ValueError, match="no values"):
        measured([])


def test_networks() -> None:
    ring, tree = Network(1e-6, 1e9), Network(1e-6, 1e9, "tree")
    assert ring.start(4) == pytest.approx(6e-6)
    assert ring.per_byte(4) == pytest.approx(1.5e-9)
    assert tree.start(24576) == pytest.approx(2 * 15 * 1e-6)
    assert ring.few_bytes(1) == ring.start(1) == ring.per_byte(1) == 0
