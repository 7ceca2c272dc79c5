"""The prediction of a step: tied to what was measured, and moved by what moves real ones."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
import synthetic
import synthetic_ranks

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.plan import Uniform
from dltune.systems.ranks.allreduce import decide
from dltune.systems.ranks.allreduce.decide import GLOO, METHODS, Search, applicable
from dltune.systems.ranks.allreduce.measurements import (
    DEFAULTS,
    NETWORKS,
    YIELDING,
    calls,
    observed,
    unobserved,
)
from dltune.systems.ranks.allreduce.model import Model
from dltune.systems.ranks.allreduce.section import Controller, Knobs, core_faults
from dltune.systems.ranks.simulation.job import MPI, ORIGINAL, Network

MACHINE = synthetic.machine(2)


def model(controller: Controller = "mpi") -> Model:
    profile = synthetic_ranks.profile(MACHINE, seconds=4e-3)
    ranks = [synthetic_ranks.rank(k, controller=controller) for k in range(2)]
    return Model(profile, calls(profile), observed(synthetic_ranks.report(MACHINE, ranks)))


@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_the_job_as_it_ran_takes_as_long_as_it_did(controller: Controller) -> None:
    made = model(controller)
    assert made.outcome(made.original, ORIGINAL).seconds == pytest.approx(made.step, rel=0.02)


def test_gradients_are_there_in_the_order_of_the_backward_pass() -> None:
    found = model().computing(1, Uniform(1, 1))
    assert list(found.ready) == sorted(found.ready, reverse=True)
    assert found.after > 0
    assert found.busy == pytest.approx(1.0, rel=1e-3)


def test_what_waits_for_gradients_comes_after_them() -> None:
    """Not a second time in what remains of the round."""
    short, long = (
        Model(profile, calls(profile), unobserved(2, 2, "gloo")).computing(1, Uniform(1, 1))
        for profile in (
            synthetic_ranks.profile(MACHINE),
            synthetic_ranks.profile(MACHINE, updates={0: 3e-3, 2: 7e-3}),
        )
    )
    seconds = {places: seconds for seconds, places in long.updates}
    assert seconds.keys() == {(place,) for place in range(6)}
    assert seconds[0,] == pytest.approx(3e-3)
    assert seconds[2,] == pytest.approx(7e-3)
    assert long.after == pytest.approx(short.after, abs=1e-4)


@pytest.mark.parametrize(
    ("updates", "cut"),
    [({0: 0.02}, True), ({}, False)],
    ids=["one update is long", "all updates are short"],
)
def test_tac_and_pieces_where_an_update_is_worth_it(updates: dict[int, float], cut: bool) -> None:
    """Two gradients on a slow link: the second one's bytes are half of the first one's."""
    profile = synthetic_ranks.profile(
        MACHINE, layers=2, elements=500_000, seconds=4e-3, updates=updates
    )
    slow = dataclasses.replace(unobserved(2, 2, "gloo"), network=Network(50e-6, 4e8))
    made = Model(profile, calls(profile), slow)
    section, name = Search(made, profile.machine, None, "tac").plan(
        ("ordered-bins",), forced=True, report="x"
    )
    predicted = {p.method: p.seconds for p in section.predictions}
    assert name == "tac-bins"
    assert (predicted["tac-bins"] < 0.95 * predicted["ordered-bins"]) == cut
    assert predicted["tac-bins"] <= predicted["ordered-bins"] * 1.001
    assert section.orders
    assert [bin_.tensors for bin_ in section.orders[0].bins] == [(1,), (0,), (1,)][: 2 + cut]
    assert [*struct_faults("allreduce", section), *core_faults(section, 2)] == []
    assert any("cut: gradient 1 in 2" in reason for reason in section.reasons) == cut


def test_more_cores_compute_faster_and_keep_more_of_them_busy() -> None:
    made = model()
    one, two = made.computing(1, Uniform(1, 1)), made.computing(2, Uniform(2, 1))
    assert max(two.ready) < max(one.ready)
    assert 1.0 < two.busy <= 2.0


def test_gradients_of_a_second_step_come_after_the_first() -> None:
    """A GAN's two steps make one round, each with a list of its own."""
    profile = synthetic_ranks.profile(MACHINE)
    second = msgspec.structs.replace(profile.steps[0], signature="other", name="other")
    both = msgspec.structs.replace(profile, steps=(profile.steps[0], second))
    found = Model(both, calls(both), unobserved(2, 2, "gloo"))
    assert [call.step for call in found.calls] == [0, 1]
    ready = found.computing(2, Uniform(2, 1)).ready
    assert min(ready[6:]) > max(ready[:6])
    assert found.step == pytest.approx(0.1)


def test_ranks_that_were_bound_ran_on_their_own_cores() -> None:
    profile = synthetic_ranks.profile(MACHINE)
    ranks = [
        msgspec.structs.replace(synthetic_ranks.rank(k), bound=True, cpus=(k,)) for k in range(2)
    ]
    seen = observed(synthetic_ranks.report(MACHINE, ranks))
    pool = Model(profile, calls(profile), seen).original.pool
    assert (pool.ranks, pool.cores) == (1, 1.0)
    assert (model().original.pool.ranks, model().original.pool.cores) == (2, 2.0)


def test_a_collective_of_many_ranks_takes_what_it_takes_among_all() -> None:
    profile = synthetic_ranks.profile(MACHINE)
    seen = unobserved(24_576, 6, "mpi")
    made = Model(profile, calls(profile), seen)
    job = made.job(made.original)
    assert job.ranks < 200
    assert job.ranks % 6 == 0
    assert job.network.start(job.ranks) == pytest.approx(seen.network.start(24_576))
    assert job.synchronization == pytest.approx(seen.network.few_bytes(24_576))


def test_a_profile_without_thread_samples_is_refused() -> None:
    profile = synthetic_ranks.profile(MACHINE)
    bare = msgspec.structs.replace(
        profile, ops=tuple(msgspec.structs.replace(op, times=()) for op in profile.ops)
    )
    with pytest.raises(UsageError, match="no op times by thread count"):
        Model(bare, calls(bare), unobserved(2, 2, "mpi"))


def test_only_what_helps_is_planned_unless_it_was_asked_for() -> None:
    profile = synthetic_ranks.profile(MACHINE, seconds=4e-3)
    made = model()
    section, name = Search(made, profile.machine, None).plan(METHODS, forced=False, report="x")
    predicted = {p.method: p.seconds for p in section.predictions}
    assert predicted[name] <= predicted["original"]
    assert predicted[name] <= min(predicted.values()) * 1.01
    forced, whole = Search(made, profile.machine, None).plan(
        ("core-partition", "ordered-bins", "yield", "knobs"), forced=True, report="x"
    )
    assert whole == "core-partition+ordered-bins+yield+knobs"
    assert forced.yield_when_idle
    assert forced.sleeps is None
    assert forced.cores
    assert forced.orders
    assert forced.knobs


@pytest.mark.parametrize(("threshold", "inter"), [(1 << 26, 1), (64, 2)])
def test_bins_that_are_to_travel_meanwhile_need_a_thread_that_hands_them_in(
    threshold: int, inter: int
) -> None:
    profile = synthetic_ranks.profile(MACHINE, seconds=4e-3)
    settings = {"HOROVOD_FUSION_THRESHOLD": str(threshold)}
    ranks = [synthetic_ranks.rank(k, settings=settings) for k in range(2)]
    made = Model(profile, calls(profile), observed(synthetic_ranks.report(MACHINE, ranks)))
    section, _ = Search(made, profile.machine, Uniform(1, 1)).plan(
        ("core-partition", "ordered-bins"), forced=True, report="x"
    )
    assert section.orders
    assert (len(section.orders[0].bins) > 1) == (inter > 1)
    assert section.threads == Uniform(1, inter)
    assert any("2 inter-op threads" in reason for reason in section.reasons) == (inter > 1)


def test_what_applies() -> None:
    assert applicable(None, "mpi", needs=True) == (METHODS, ())
    assert applicable(None, "gloo", needs=True) == (
        ("core-partition", "ordered-bins", "knobs"),
        (GLOO,),
    )
    methods, cannot = applicable(None, "gloo", needs=False)
    assert methods == ("ordered-bins", "knobs")
    assert len(cannot) == 2


def test_network_and_settings_of_a_report() -> None:
    """Two ranks: what a ring costs is what the timeline says."""
    ranks = [
        synthetic_ranks.rank(
            k, settings={"HOROVOD_CYCLE_TIME": "2.5", "HOROVOD_FUSION_THRESHOLD": "1048576"}
        )
        for k in range(2)
    ]
    report = synthetic_ranks.report(MACHINE, ranks, timeline=synthetic_ranks.timeline())
    found = observed(report)
    assert found.knobs == Knobs(2.5e-3, 1 << 20, DEFAULTS.cache_capacity)
    assert found.network.start(2) == pytest.approx(0.5e-3)
    assert found.network.per_byte(2) == pytest.approx(5e-9)
    assert found.assumed == ()
    without = observed(synthetic_ranks.report(MACHINE, ranks))
    assert without.network == NETWORKS["mpi"]
    assert any("no timeline" in sentence for sentence in without.assumed)


def test_the_neediest_rank_counts() -> None:
    ranks = [
        synthetic_ranks.rank(0, cpu={"compute": 0.5, "python": 0.1, "background": 0.1}),
        synthetic_ranks.rank(1, cpu={"compute": 0.3, "background": 0.4, "input": 0.2}),
    ]
    need = observed(synthetic_ranks.report(MACHINE, ranks)).need
    assert (need.background, need.input) == (0.4, 0.2)
    assert need.compute == pytest.approx(0.6)


def test_a_job_that_yields_already() -> None:
    ranks = [
        synthetic_ranks.rank(k, settings={"OMPI_MCA_mpi_yield_when_idle": "1"}) for k in range(2)
    ]
    assert observed(synthetic_ranks.report(MACHINE, ranks)).waiting == YIELDING
    assert observed(synthetic_ranks.report(MACHINE)).waiting == MPI


def test_ranks_that_talk_in_two_ways_are_refused() -> None:
    ranks = [synthetic_ranks.rank(0, controller="gloo"), synthetic_ranks.rank(1)]
    with pytest.raises(UsageError, match="some ranks of the report use MPI"):
        observed(synthetic_ranks.report(MACHINE, ranks))


def test_knobs_change_only_for_a_gain() -> None:
    setting = model().original
    same, _ = decide.tuned(setting, 6, None, lambda _: 0.05)
    assert same == DEFAULTS
    slow, reasons = decide.tuned(setting, 6, None, lambda s: 0.05 + s.knobs.cycle_time)
    assert slow.cycle_time == min(decide.CYCLES)
    assert "0.5 ms: 50.5" in reasons[0]


def test_the_cache_holds_all_tensors_and_the_threshold_the_largest_bin() -> None:
    setting = model().original
    small = dataclasses.replace(setting, knobs=Knobs(1e-3, 1 << 20, 100))
    found, _ = decide.tuned(small, 700, (1 << 20) + 1, lambda _: 0.05)
    assert found.cache_capacity >= 1400
    assert found.fusion_threshold == 2 << 20
