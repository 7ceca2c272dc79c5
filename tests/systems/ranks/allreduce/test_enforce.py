"""What the ranks of a Horovod job are told under a plan, and what is told of them."""

from __future__ import annotations

import os
import subprocess

import msgspec
import pytest
import synthetic

from dltune.base.errors import JobFailed, UsageError
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.job.rank_layout import Shares
from dltune.plan.plan import new_plan
from dltune.plan.planner import Run
from dltune.schemas.plan import Uniform
from dltune.systems.ranks.allreduce.enforce import EnforcedAllreduce
from dltune.systems.ranks.allreduce.section import (
    AllreducePlan,
    Bin,
    Knobs,
    Order,
    RankCores,
    Sleeps,
)
from dltune.systems.ranks.allreduce.show import Heard, RankOutcome, intent, outcome
from dltune.systems.ranks.horovod.preload.interposer import REST, Counts

MACHINE = synthetic.machine(4)
CORES = (RankCores((0,), (0,), (1,), (0, 1)), RankCores((2,), (2,), (3,), (2, 3)))
BINS = (Bin((0,), 20, (0, 5)), Bin((2,), 8), Bin((1,), 16), Bin((0,), 28, (5, 12)))
ORDER = Order(((3, 4), (4,), (2,)), ("float32",) * 3, BINS)
SECTION = AllreducePlan(
    report="",
    controller="gloo",
    ranks=2,
    local=2,
    cores=CORES,
    threads=Uniform(1, 2),
    orders=(ORDER,),
    sleeps=None,
    knobs=Knobs(0.0025, 1 << 20, 512),
    yield_when_idle=False,
    predictions=(),
    reasons=(),
)


def ranks(section: AllreducePlan = SECTION, *, partial: bool = False) -> EnforcedAllreduce:
    plan = new_plan(MACHINE, sections={"allreduce": section})
    run = Run(plan, MACHINE, (), os.environ, partial, lambda _: None, Shares(MACHINE))
    return EnforcedAllreduce(section, run)


def python(rank: int, size: int = 2, local: int | None = None, **more: str) -> protocol.Python:
    environment = {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(size),
        "HOROVOD_LOCAL_RANK": str(rank % (local or size)),
        "HOROVOD_LOCAL_SIZE": str(local or size),
        "HOROVOD_CONTROLLER": "gloo",
    }
    return protocol.Python(os.getpid(), ["python"], "3.11", environment | more)


def init(rank: int = 1, controller: str = "gloo", **changes: object) -> protocol.Horovod:
    return msgspec.structs.replace(
        protocol.Horovod(
            pid=os.getpid(),
            rank=rank,
            size=2,
            local_rank=rank,
            local_size=2,
            controller="mpi" if controller == "mpi" else "gloo",
            version="0.28.1",
            mpi=None,
            threads=[20, 21, 22],
            bound=[0, 1, 2, 3],
            settings={},
            overridden={},
        ),
        **changes,
    )


class NoJob:
    """Takes what is to be waited for, which never comes."""

    def watch(self, source, ready) -> None:
        pass


def hear(under: EnforcedAllreduce, *told: protocol.Message) -> None:
    for message in told:
        under.hear(NoJob(), Event(None, message))


def test_a_rank_is_told_its_cores_its_bins_and_its_settings() -> None:
    told = ranks().answer(python(1))

    assert told["cpus"] == [3]
    assert told["horovod"] == {
        "cores": {"background": [2], "helpers": [2], "first": True},
        "sleeps": False,
        "settings": {
            "HOROVOD_CYCLE_TIME": "2.5",
            "HOROVOD_FUSION_THRESHOLD": "1048576",
            "HOROVOD_CACHE_CAPACITY": "512",
        },
        "orders": [
            {
                "shapes": ORDER.shapes,
                "dtypes": ORDER.dtypes,
                "bins": [((0,), (0, 5)), ((2,), None), ((1,), None), ((0,), (5, 12))],
            }
        ],
    }


@pytest.mark.parametrize(
    ("sleeps", "idle", "first"),
    [(None, False, False), (None, True, False), (Sleeps(3e-5, None), False, True)],
)
def test_a_background_thread_that_spins_does_not_go_first(sleeps, idle, first) -> None:
    mpi = msgspec.structs.replace(SECTION, controller="mpi", sleeps=sleeps, yield_when_idle=idle)
    told = ranks(mpi).answer(python(1, HOROVOD_CONTROLLER="mpi"))["horovod"]
    assert isinstance(told, dict)
    assert told["cores"]["first"] is first


def test_the_launcher_is_told_nothing() -> None:
    launcher = protocol.Python(1, ["horovodrun"], "3.11", {})
    assert ranks().answer(launcher) == {}


def test_without_cores_a_rank_stays_where_it_is() -> None:
    section = msgspec.structs.replace(SECTION, cores=None, threads=None)
    told = ranks(section).answer(python(1))
    assert "cpus" not in told


def test_a_plan_for_other_ranks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"for 2 ranks, 2 of them on this node; the job runs 4"):
        ranks().answer(python(3, size=4))


def test_a_partial_plan_for_other_ranks_keeps_what_does_not_depend_on_them() -> None:
    under = ranks(partial=True)
    told = under.answer(python(3, size=4))["horovod"]
    assert isinstance(told, dict)
    assert "cores" not in told
    assert told["orders"]
    assert under.dropped == [
        "the plan is for 2 ranks, 2 of them on this node: its cores do not fit 4 ranks"
    ]


def test_ranks_on_other_nodes_would_wait_for_bins_for_ever() -> None:
    under = ranks(msgspec.structs.replace(SECTION, ranks=4, sleeps=Sleeps(3e-5, None)))
    told = under.answer(python(1, size=4, local=2))["horovod"]
    assert isinstance(told, dict)
    assert told["orders"] == []
    assert told["sleeps"] is False
    assert told["settings"] == {}
    assert told["cores"]
    under.answer(python(0, size=4, local=2))
    (dropped,) = under.dropped
    assert dropped.startswith(
        "bins, sleeps, knobs: this dltune does not control the ranks on other nodes"
    )


def test_a_plan_for_another_controller_is_refused_before_the_job_has_begun() -> None:
    mpi = python(0, HOROVOD_CONTROLLER="mpi")
    with pytest.raises(UsageError, match="over gloo, the job runs it over mpi"):
        ranks().answer(mpi)


def test_a_job_of_one_rank_is_refused_when_it_starts_horovod() -> None:
    under = ranks()
    alone = init(0, size=1, local_size=1)
    with pytest.raises(UsageError, match="the job runs 1 rank, 1 of them on this node"):
        hear(under, protocol.Python(alone.pid, ["python"], "3.11", {}), alone)


def test_a_job_without_horovod_is_an_error() -> None:
    under = ranks()
    hear(under, python(0))
    with pytest.raises(UsageError, match=r"no process of the job called hvd\.init"):
        under.ended(0)


def test_a_rank_whose_first_python_was_another() -> None:
    """As that of `conda run`, which starts the one that trains."""
    under = ranks()
    with subprocess.Popen(["sleep", "60"]) as trains:
        wrapper = python(1)
        hear(under, wrapper, msgspec.structs.replace(wrapper, pid=trains.pid))
        hear(under, init(1, pid=trains.pid))
        trains.kill()
        (rank,) = under.ended(0).document
    assert (rank.rank, rank.pid) == (1, trains.pid)


def test_a_job_that_cannot_import_horovod_keeps_its_exit_code() -> None:
    under = ranks()
    hear(under, protocol.NoHorovod(7, "ModuleNotFoundError: No module named 'horovod'"))
    with pytest.raises(JobFailed, match=r"could not be imported.*No module named") as caught:
        under.ended(3)
    assert caught.value.exit_code == 3


def heard(**changes: object) -> Heard:
    planned = protocol.Reduction(1, [[3, 4], [4], [2]], ["float32"] * 3, 2, "")
    device = protocol.Device(1, 2, 0, 0)
    return Heard(**{"init": init(), "reductions": [planned, planned], "device": device} | changes)


def came(section: AllreducePlan = SECTION, **changes: object) -> RankOutcome:
    return outcome(section, MACHINE, (), heard(**changes))


def test_all_that_was_enforced_is_told_once() -> None:
    assert came(moved=3) == RankOutcome(
        1,
        os.getpid(),
        (
            "background thread on CPU 2, 2 helpers on 2, ops on 3",
            "3 threads of tf.data on CPU 2-3",
            "intra-op 1, inter-op 2",
            "3 gradients are reduced in 2 bins",
            "HOROVOD_CYCLE_TIME=2.5",
            "HOROVOD_FUSION_THRESHOLD=1048576",
            "HOROVOD_CACHE_CAPACITY=512",
        ),
        (),
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"device": None}, "intra-op 1, inter-op 2: TensorFlow created no CPU device"),
        ({"moved": 0}, "tf.data on CPU 2-3: no thread of tf.data was found"),
        ({"unmoved": "it is not ours"}, "tf.data on CPU 2-3: it is not ours"),
        ({"reductions": []}, "bins: the job made no call that reduces a list of gradients"),
        (
            {"reductions": [protocol.Reduction(1, [[3]], ["float32"], None, "it has groups")]},
            "bins of a call with 1 gradients: it has groups",
        ),
        ({"init": init(threads=[])}, "cores: hvd.init() started no thread"),
    ],
)
def test_what_was_not_enforced_is_told_with_its_reason(changes, told) -> None:
    left = came(**changes).left
    assert any(sentence.startswith(told) for sentence in left), left


def test_what_the_plan_replaced_is_told() -> None:
    changed = init(overridden={"HOROVOD_CYCLE_TIME": "1", "HOROVOD_THREAD_AFFINITY": "0"})
    told = came(init=changed, device=protocol.Device(1, 2, 4, 4)).enforced
    assert "HOROVOD_CYCLE_TIME=2.5 (was 1)" in told
    assert "HOROVOD_THREAD_AFFINITY (was 0) is replaced by the plan's cores" in told
    assert "intra-op 1, inter-op 2 (the script asked for 4 and 4)" in told


def counted(rests: int) -> Counts:
    counts = dict.fromkeys((*Counts.__struct_fields__,), 0) | {"rests": rests, "cycles": 300}
    return msgspec.convert(counts, Counts)


@pytest.mark.parametrize(
    ("changes", "enforced", "told"),
    [
        ({"counts": counted(7)}, True, "; 7 rests in 300 cycles"),
        (
            {"counts": counted(0)},
            False,
            ": it never happened; possible causes: Horovod writes a timeline",
        ),
        ({"counts": None}, False, ": the preloaded library reported no counts"),
        ({"init": init(overridden={REST: "0.05"})}, False, ": the job can have process sets"),
    ],
)
def test_rests_are_told(changes: dict[str, object], enforced: bool, told: str) -> None:
    sleeps = Sleeps(None, None, 0.05)
    section = msgspec.structs.replace(SECTION, controller="mpi", sleeps=sleeps)
    came_of_it = came(section, **changes)
    whole = "rest: sleep up to 50 ms while there is nothing to send"
    sentences = came_of_it.enforced if enforced else came_of_it.left
    assert any(sentence.startswith(whole + told) for sentence in sentences), came_of_it
    assert whole in intent(section, MACHINE)


def test_a_slice_is_told() -> None:
    sliced = init(slice=0.0001)
    assert (
        came(init=sliced)
        .enforced[0]
        .startswith("background thread on CPU 2 in time slices of 0.1 ms")
    )


def test_a_binding_of_the_launcher_is_told() -> None:
    bound = init(bound=[1])
    assert came(init=bound).enforced[0].endswith("; the launcher had bound the rank to CPU 1")
    free = msgspec.structs.replace(SECTION, cores=None)
    assert "this rank stays bound to CPU 1" in came(free, init=bound).left[0]


def test_what_would_be_enforced() -> None:
    assert intent(SECTION, MACHINE)[:3] == [
        "for 2 ranks over gloo, 2 on this node",
        "local rank 0: background thread on CPU 0, its helpers on 0, ops on 1, tf.data on 0-1",
        "local rank 1: background thread on CPU 2, its helpers on 2, ops on 3, tf.data on 2-3",
    ]
    said = "3 gradients are reduced in 4 bins of 20, 8, 16, 28 bytes, gradient 0 in 2 pieces"
    assert said in intent(SECTION, MACHINE)
