"""What follows from figures: each finding from a report that calls for it, and from none that does
not."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from looked import looked
from synthetic import machine, node, profile

from dltune.analysis.roofline import analyse
from dltune.base.documents import struct_faults
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rules
from dltune.schemas.diagnosis import Finding
from dltune.schemas.profile import Part
from dltune.systems.ranks.horovod.schema import (
    SCHEMA,
    WRITER,
    Cycles,
    Distribution,
    Horovod,
    Rank,
    Role,
    Tensor,
    ThreadUse,
    Timeline,
)


def thread(tid: int, role: Role, cpu: float, wait: float = 0.0, **also: Any) -> ThreadUse:
    use = ThreadUse(tid, "python", role, cpu, cpu, 0.0, wait, 100.0, 10.0, (0, 1))
    return msgspec.structs.replace(use, **also)


def rank(number: int, *threads: ThreadUse, **also: Any) -> Rank:
    quiet = threads or (thread(100, "background", 0.03), thread(101, "compute", 0.6))
    one = Rank(
        rank=number,
        size=2,
        local_rank=number,
        local_size=2,
        host="node",
        pid=1000 + number,
        seconds=10.0,
        controller="mpi",
        horovod="0.28.1",
        mpi="Open MPI 4.1.8",
        settings={},
        evidence=("stack",),
        background=100,
        cpu=sum(t.cpu for t in quiet),
        cpus=(0, 1),
        bound=False,
        threads=quiet,
        cycles=None,
        ended=None,
        unseen=(),
    )
    return msgspec.structs.replace(one, **also)


def found(*ranks: Rank, timeline: Timeline | None = None, cores: int = 2) -> tuple[Finding, ...]:
    report = Horovod(SCHEMA, "", "", (), "", "", {"node": cores}, False, ranks, timeline, ())
    assert struct_faults("", report) == []
    return looked(Evidence(reports=(report,)))


def told(*ranks: Rank, **also: Any) -> str:
    return "\n".join(f.title for f in found(*ranks, **also))


def distribution(median: float, p95: float | None = None, samples: int = 100) -> Distribution:
    return Distribution(samples, median, median, p95 or median, p95 or median, p95 or median)


NOTHING = Distribution(0)


def timeline(**also: Any) -> Timeline:
    one = Timeline(
        path="timeline.json",
        seconds=10.0,
        events=1000,
        truncated=False,
        controller="mpi",
        cycles=None,
        batches=100,
        fused=distribution(10.0),
        cached=0.9,
        negotiation=distribution(1e-3),
        queue=distribution(1e-4),
        transfer=distribution(1e-3),
        late={"0": 0.5, "1": 0.5},
        tensors=tuple(
            Tensor(f"t{i}", 100, 1 << 20, distribution(1e-3), NOTHING, NOTHING) for i in range(10)
        ),
    )
    return msgspec.structs.replace(one, **also)


def test_nothing_is_wrong():
    (only,) = found(rank(0), rank(1), timeline=timeline())
    assert only.title == "Horovod's background threads do not slow down the job"
    assert "3.0% of a core" in only.evidence


def spinner(**also: Any) -> Rank:
    return rank(0, thread(100, "background", 0.27, **also), thread(101, "compute", 0.5, 0.3))


def test_a_background_thread_that_spins():
    first = found(spinner(), rank(1))[0]
    assert first.title == "the background thread of rank 0 spins: up to 27% of a core"
    assert "100% of it in user space" in first.evidence
    assert "wait for 0.30 of a core" in first.evidence
    assert "OMPI_MCA_mpi_yield_when_idle" in (first.fix or "")


def test_spinning_costs_what_it_denies_the_threads_that_compute():
    """0.27 of a core, of the 0.77 that the rank has and the 0.3 that it waits for."""
    first = found(spinner(), rank(1))[0]
    assert first.share == pytest.approx(0.27 / 1.07)
    alone = rank(0, thread(100, "background", 0.27), thread(101, "compute", 0.5))
    assert found(alone, rank(1))[0].share == 0.0


def test_work_in_the_kernel_is_no_spinning():
    assert "spins" not in told(spinner(user=0.1, system=0.17), rank(1))


def test_open_mpi_can_give_the_core_away():
    assert [one.setting for one in found(spinner(), rank(1))[0].apply] == ["mpi_yield"]
    other = msgspec.structs.replace(spinner(), mpi="MPICH 4.2.0")
    assert found(other, rank(1))[0].apply == ()


def test_gloo_gets_no_advice_on_mpi():
    quiet = msgspec.structs.replace(spinner(), controller="gloo", mpi=None)
    assert "OMPI" not in (found(quiet, rank(1))[0].fix or "")


def test_a_background_thread_that_waits_for_a_core():
    late = rank(1, thread(100, "background", 0.03, 0.4), thread(101, "compute", 0.6))
    assert "the background thread of rank 1 waits for a core: up to 40%" in told(rank(0), late)


def test_ranks_bound_to_one_core():
    bound = [
        rank(n, thread(100, "background", 0.3, 0.5), thread(101, "compute", 0.4, 0.5), cpus=(n,),
             bound=True)
        for n in (0, 1)
    ]  # fmt: skip
    first = found(*bound)[0]
    assert first.title == "ranks 0, 1 are bound to one core each, and can use more"
    assert "--bind-to none" in (first.fix or "")
    assert first.share == pytest.approx(1.0 / 1.7)


def test_a_binding_that_leaves_room_is_left_alone():
    roomy = [rank(n, cpus=(n,), bound=True) for n in (0, 1)]
    assert "bound" not in told(*roomy)


def test_more_threads_than_cores():
    workers = [thread(tid, "compute", 0.3, 0.5) for tid in (1, 2, 3)]
    crowd = [rank(number, thread(100, "background", 0.03), *workers) for number in (0, 1)]
    assert "ranks on node have more runnable threads than cores: 4.9 threads on 2 cores" in told(
        *crowd
    )
    assert "more runnable threads" not in told(*crowd, cores=8)


def test_what_a_spinning_thread_denies_is_not_counted_twice():
    workers = [thread(tid, "compute", 0.3, 0.5) for tid in (1, 2)]
    crowd = [rank(number, thread(100, "background", 0.4), *workers) for number in (0, 1)]
    shares = {one.cause: one.share for one in found(*crowd)}
    assert shares["spinning-thread"] == pytest.approx(0.4 / 2.0)
    assert shares["crowded-ranks"] == pytest.approx((1.0 - 0.4) / 2.0)


@pytest.mark.parametrize(("starved", "waits"), [(0.4, False), (0.05, True)])
def test_waiting_for_ranks_that_keep_their_own_ops_from_the_cores_is_told_once(starved, waits):
    spinners = [
        rank(n, thread(100, "background", 0.4), thread(101, "compute", 0.6, starved))
        for n in (0, 1)
    ]
    report = Horovod(SCHEMA, "", "", (), "", "", {"node": 2}, False, tuple(spinners), None, ())
    made = profile(machine(2), [], {"train": [node("HorovodAllreduce", None)]}, span=0.1)
    times = Part("ops", 0.07), Part("communication", 0.03)
    step = msgspec.structs.replace(made.steps[0], parts=times)
    made = msgspec.structs.replace(made, steps=(step,))
    causes = {one.cause for one in looked(Evidence(profile=analyse(made), reports=(report,)))}
    assert "spinning-thread" in causes
    assert ("communication-wait" in causes) == waits


def test_pytorchs_ranks_get_no_advice_on_horovod():
    torch: dict[str, Any] = {"controller": "gloo", "mpi": None, "horovod": None, "pytorch": "2.13"}
    late = thread(100, "background", 0.03, 0.4)
    workers = [thread(tid, "compute", 0.3, 0.5) for tid in (1, 2, 3)]
    crowd = found(*(rank(number, late, *workers, **torch) for number in (0, 1)))
    cures = {one.cause: str(one.fix) for one in crowd}
    assert "OMP_NUM_THREADS=1" in cures["crowded-ranks"]
    assert cures["starved-background"].endswith(
        "give each rank one intra-op thread less (OMP_NUM_THREADS)"
    )
    told_one = rank(0, late, settings={"OMP_NUM_THREADS": "1"}, **torch)
    (starved,) = found(told_one, rank(1, **torch))
    assert "fewer ranks on the node" in str(starved.fix)
    assert told(rank(0, **torch), rank(1, **torch)).startswith(
        "PyTorch's background threads do not slow"
    )
    versions = found(rank(0, **torch), rank(1, **torch | {"pytorch": "2.6"}))
    assert "ranks run different versions of PyTorch" in [one.title for one in versions]


def test_sleeps_that_last_too_long():
    def cycles(p95: float) -> Cycles:
        return Cycles(1e-3, 500.0, distribution(1e-3), distribution(1e-4, p95), None)

    assert "rank 0 oversleeps: 5 % of its sleeps last more than 4.0 ms too long" in told(
        rank(0, cycles=cycles(4e-3)), rank(1, cycles=cycles(1e-4))
    )
    assert "oversleep" not in told(rank(0, cycles=cycles(2e-4)), rank(1))


def test_a_rank_that_works_more():
    busy = rank(1, thread(100, "background", 0.03), thread(101, "compute", 0.9))
    assert "rank 1 has more work than the others" in told(rank(0), busy)
    (first, *_) = found(rank(0), busy)
    assert first.share == pytest.approx(1 - 0.75 / 0.9)


def test_the_first_to_fail_is_the_cause_even_if_others_end_sooner():
    """Horovod's own error says that another rank is gone."""
    cause = rank(0, ended=1, ended_after=5.2, error="ValueError: out of luck")
    victim = rank(1, ended=1, ended_after=5.0, error="HorovodInternalError: peer is gone")
    first = found(cause, victim)[0]
    assert first.title == "rank 0 failed first, and the others followed"
    assert "failed with ValueError: out of luck" in first.evidence


def test_ranks_that_end_well_are_no_failure():
    assert "failed" not in told(
        rank(0, ended=0, ended_after=9.0), rank(1, ended=0, ended_after=9.1)
    )


def test_a_rank_that_hangs():
    first = found(rank(0), rank(1, stuck="its process is stopped by a signal"))[0]
    assert first.title == "rank 1 hangs, and the others wait for it"


def test_versions_that_differ():
    assert "different versions of Horovod" in told(rank(0), rank(1, horovod="0.27.0"))
    assert "different versions of MPI" in told(rank(0), rank(1, mpi="Open MPI 5.0.0"))


def test_a_rank_without_a_background_thread():
    assert "no background thread was found in rank 1" in told(rank(0), rank(1, background=None))


def test_ranks_that_are_not_there():
    (one,) = (f for f in found(rank(0)) if "not in this report" in f.title)
    assert one.title == "1 of 2 ranks are not in this report"
    assert "--merge" in (one.fix or "")


@pytest.mark.parametrize(
    ("also", "sentence"),
    [
        ({"truncated": True}, "the timeline ends in the middle of a record"),
        ({"late": {"0": 0.05, "1": 0.95}}, "rank 1 is the last to have its gradients 95%"),
        ({"late": {"1": 1.0}}, "rank 1 is the last to have its gradients 100%"),
        (
            {
                "fused": distribution(1.5),
                "tensors": tuple(
                    Tensor(f"t{i}", 100, 4096, distribution(1e-3), NOTHING, NOTHING)
                    for i in range(10)
                ),
            },
            "gradients are sent in small batches",
        ),
        (
            {"cycles": Cycles(1e-3, 900.0, distribution(1.1e-3), None, 0.98)},
            "98% of cycles transfer nothing",
        ),
        (
            {
                "cycles": Cycles(2e-2, 50.0, distribution(2e-2), None, 0.5),
                "queue": distribution(1.5e-2),
            },
            "gradients wait for the next cycle for longer than a transfer takes",
        ),
    ],
)
def test_a_timeline(also: dict[str, Any], sentence: str):
    assert sentence in told(timeline=timeline(**also), cores=2)
    assert sentence not in told(timeline=timeline())


def test_the_cost_of_a_timeline():
    writer = rank(0, thread(100, "background", 0.03), thread(103, "helper", 0.5, name=WRITER))
    assert "recording the timeline uses 50% of a core in rank 0" in told(
        writer, rank(1), timeline=timeline()
    )


@pytest.mark.parametrize(
    "causes",
    [
        # both stop the job
        ("failed-rank", "hanging-rank"),
        # a rank's wait for its cores
        ("ranks-on-one-core", "crowded-ranks"),
        # unknown costs, and the first of core
        (
            *("differing-versions", "unseen-background", "ranks-on-one-core", "spinning-thread"),
            *("starved-background", "late-rank", "oversleeping-thread", "small-batches"),
            *("empty-cycles", "long-cycles", "truncated-timeline", "timeline-recording"),
            *("missing-ranks", "growing-memory", "threads-over-quota"),
        ),
    ],
)
def test_rules_whose_findings_can_cost_the_same_have_a_fixed_order(causes: tuple[str, ...]):
    order = [rule.name for rule in rules()]
    positions = [order.index(cause) for cause in causes]
    assert all(earlier < later for earlier, later in itertools.pairwise(positions))
