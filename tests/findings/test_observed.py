"""Rules on what was seen of a job: each from figures that speak for it, and none in a healthy
one."""

from __future__ import annotations

import msgspec
import pytest
from looked import looked
from observations import BUSY, MIB, graphs, host, observation, process, python
from synthetic import machine, profile

from dltune.analysis.roofline import analyse
from dltune.findings.evidence import Evidence
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.profile import Part, Ratio
from dltune.schemas.settings import Choice


def found(**more: object) -> Finding:
    return looked(Evidence(observation=observation(**more)))[0]


def test_a_healthy_job_is_left_alone():
    assert looked(Evidence(observation=observation())) == ()


def test_an_affinity_that_leaves_half_of_the_cores():
    finding = found(processes=(process(cpu=0.98, cpus=(1,)),))
    assert (finding.cause, finding.share) == ("narrow-affinity", 0.5)
    assert finding.title == "the job can run on only 1 of 2 CPUs"
    assert "bound to CPU 1, although CPUs 0-1 are available" in finding.evidence


def test_one_hyperthread_of_each_core_is_all_of_the_cores():
    four = host(cpus=(0, 1, 2, 3), online=4, hyperthreads=((0, 2), (1, 3)))
    one_each = observation(host=four, processes=(process(cpus=(0, 1)),))
    assert looked(Evidence(observation=one_each)) == ()
    one_core = found(host=four, processes=(process(cpus=(0, 2)),))
    assert (one_core.cause, one_core.share) == ("narrow-affinity", 0.5)
    rank = process(cpus=(0, 1), ranks=1)
    assert looked(Evidence(observation=observation(host=four, processes=(rank,)))) == ()
    mixed = host(cpus=(0, 1, 2, 3, 4, 5), online=6, hyperthreads=((0, 1), (2, 3)))
    fair = process(cpus=(0, 1, 2), ranks=2, cpu=2.9)
    assert looked(Evidence(observation=observation(host=mixed, processes=(fair,)))) == ()


def test_one_that_has_nothing_to_do_needs_no_more_cores():
    idle = observation(processes=(process(cpu=0.2, cpus=(1,)),))
    assert looked(Evidence(observation=idle)) == ()


def test_threads_over_the_quota():
    finding = found(host=host(quota=1.0, throttled=0.6), processes=(process(intra=16),))
    assert finding.cause == "threads-over-quota"
    assert finding.apply == (Choice("threads", "1x1"),)
    assert "16 threads, but the quota allows 1 CPU" in finding.title


def test_pytorchs_threads_over_the_quota():
    torch = process(intra=16, inter=1, framework="pytorch")
    finding = found(host=host(quota=1.0, throttled=0.6), processes=(torch,))
    assert finding.cause == "threads-over-quota"
    assert finding.evidence.endswith("PyTorch uses 16 threads for an op")
    assert finding.fix is not None
    assert "OMP_NUM_THREADS=1" in finding.fix
    assert "TF_" not in finding.fix


def test_the_data_loader_of_pytorch():
    torch = process(intra=2, inter=1, cpu=1.1, framework="pytorch")
    looks = python(input=0.4)
    alone = found(processes=(torch,), python=looks)
    assert (alone.cause, alone.share) == ("loader-wait", 0.4)
    assert (
        alone.title
        == "steps wait 40% of the time for data that the training process itself prepares"
    )
    assert "at train.py:7 (<module>)" in alone.evidence
    assert alone.gain == Gain(pytest.approx(0.5 * (1 - 1.1 / 2)), 0.4)
    assert (alone.apply, alone.try_next[0]) == ((Choice("input_workers", "1"),), "input_workers")
    most = found(processes=(torch,), python=python(input=0.7))
    assert most.apply == (Choice("input_workers", "2"),)
    worker = process(2, intra=None, inter=None, cpu=0.9, framework="pytorch", parent=1)
    fed = found(processes=(torch, worker), python=looks)
    assert fed.title == "steps wait 40% of the time for the DataLoader's workers"
    assert "1 worker used 0.90 CPUs" in fed.evidence
    # all CPUs are at work: more workers would take them from the steps
    assert fed.gain == Gain(0.0, 0.4)
    assert (fed.apply, fed.try_next[0]) == ((), "input_prefetch")
    launcher = process(9, intra=None, cpu=0.1, framework="pytorch", parent=8)
    rank = process(4, cpu=1.0, framework="pytorch", parent=9)
    assert found(processes=(torch, launcher, rank), python=looks).title == alone.title
    still = process(3, cpu=0.0, intra=None, framework="pytorch", parent=1)
    hung = found(processes=(torch, still), python=looks)
    assert hung.title == "steps wait 40% of the time for DataLoader workers that hang"
    assert hung.fix is not None
    assert "py-spy dump --pid 3" in hung.fix


def test_what_is_tensorflows_is_not_advised_to_pytorch():
    looks = python(python=0.9)
    torch = observation(processes=(process(framework="pytorch"),), python=looks)
    assert looked(Evidence(observation=torch)) == ()
    assert found(python=looks).cause == "between-steps"


def test_threads_that_a_quota_pays_for_beside_others_that_it_does_not():
    finding = found(host=host(quota=1.0, throttled=0.6), processes=(process(intra=1),))
    assert finding.title == "the job uses up its quota of 1 CPU"
    assert (finding.share, finding.apply) == (0.6, ())
    assert "an op uses 1 of the job's 9 threads" in finding.evidence
    kept = observation(host=host(quota=1.0, throttled=0.01), processes=(process(intra=1),))
    assert looked(Evidence(observation=kept)) == ()


def test_of_many_cpus_those_count_that_a_quota_pays_for():
    many = tuple(range(64))
    wide = host(cpus=many, online=64, quota=2.0)
    waits = python(input=0.4)
    busy = found(host=wide, processes=(process(cpus=many, cpu=2.0),), python=waits)
    assert busy.cause == "busy-input"
    assert "the job used 2.00 of 2 CPUs" in busy.evidence
    idle = found(host=wide, processes=(process(cpus=many, cpu=1.0),), python=waits)
    assert (idle.cause, idle.gain) == ("sequential-map", Gain(0.25, 0.4))
    torch = process(cpus=many, cpu=1.0, inter=1, framework="pytorch")
    loads = found(host=wide, processes=(torch,), python=python(input=0.9))
    assert loads.apply == (Choice("input_workers", "2"),)
    bound = process(cpus=(0, 1), cpu=1.9)
    assert looked(Evidence(observation=observation(host=wide, processes=(bound,)))) == ()


def test_processes_that_are_in_each_others_way():
    four = tuple(process(pid, cpu=0.5, queued=0.7) for pid in range(1, 5))
    finding = found(processes=four)
    assert finding.cause == "crowded-processes"
    assert finding.share == pytest.approx(0.7 / 1.2 * (1 - 0.005))
    assert finding.apply == (Choice("threads", "1x1"),)


def test_processes_that_rest_are_in_nobodys_way():
    resting = tuple(process(pid, cpu=0.01, queued=0.0) for pid in range(2, 5))
    alone = process(cpu=1.0, queued=2.0)
    assert looked(Evidence(observation=observation(processes=(alone, *resting)))) == ()


def test_processes_on_what_a_quota_pays_for():
    two = tuple(process(pid, cpu=0.5, queued=0.4, intra=1) for pid in (1, 2))
    finding = found(host=host(quota=1.0), processes=two)
    assert finding.cause == "crowded-processes"
    assert finding.title.endswith("use 2 intra-op threads in total on 1 CPU")


def test_processes_with_cpus_of_their_own_do_not_meet():
    bound = tuple(
        process(pid, cpus=(pid,), cpu=0.9, queued=0.05, intra=1, ranks=2) for pid in (0, 1)
    )
    assert looked(Evidence(observation=observation(processes=bound))) == ()


def test_others_elsewhere_than_on_the_jobs_cpus_cost_nothing():
    large = host(cpus=tuple(range(8)), online=8, others=1.0, neighbours=(BUSY,))
    on_two = observation(host=large, processes=(process(cpu=1.0, queued=1.0, ranks=4),))
    finding = looked(Evidence(observation=on_two))[0]
    assert finding.title == "other processes use 1.0 of the job's 2 CPUs"
    assert finding.share == 0.5


def test_a_main_thread_that_waits_for_its_own_loader():
    finding = found(python=python(queue=0.4))
    assert (finding.cause, finding.share) == ("queue-wait", 0.4)
    assert (
        "in 40% of the samples, the main thread waited for a queue at train.py:7 (<module>)"
        in finding.evidence
    )


def test_a_neighbour_costs_no_more_than_the_job_waits():
    busy = host(others=0.9, neighbours=(BUSY,))
    finding = found(host=busy, processes=(process(cpu=1.0, queued=0.25),))
    assert (finding.cause, finding.share) == ("neighbour", 0.2)
    assert "a neighbour (pid 77, 0.90 cores)" in finding.evidence
    assert looked(Evidence(observation=observation(host=busy))) == ()


def test_a_job_that_shares_its_cpus_gets_a_thread_for_each_free_one():
    busy = host(others=0.9, neighbours=(BUSY,))
    finding = found(host=busy, processes=(process(cpu=1.0, queued=0.25, intra=2, inter=1),))
    assert "if they must stay, set 1 intra-op thread" in finding.fix
    assert [(choice.setting, choice.value) for choice in finding.apply] == [("threads", "1x1")]
    alone = found(host=busy, processes=(process(cpu=1.0, queued=0.25, intra=1, inter=1),))
    assert alone.apply == ()


def test_a_neighbour_on_cores_that_the_quota_excludes_costs_nothing():
    """Two cores, one core's quota: another process can have a whole core without loss."""
    one_core = host(others=0.9, neighbours=(BUSY,), quota=1.0)
    waiting = process(cpu=1.0, queued=1.0)
    causes = {
        one.cause
        for one in looked(Evidence(observation=observation(host=one_core, processes=(waiting,))))
    }
    assert "neighbour" not in causes
    both = host(others=1.5, neighbours=(BUSY,), quota=1.0)
    (finding,) = (
        one
        for one in looked(Evidence(observation=observation(host=both, processes=(waiting,))))
        if one.cause == "neighbour"
    )
    assert finding.share == 0.5


def test_time_that_the_hypervisor_steals():
    finding = found(host=host(stolen=0.5))
    assert finding.cause == "neighbour"
    assert finding.title.startswith("the hypervisor gives 25%")


def test_graphs_that_are_traced_at_each_step():
    finding = found(python=python(tracing=0.6), graphs=graphs(traced=40, once=40))
    assert (finding.cause, finding.share) == ("retracing", 0.6)
    assert "at train.py:7 (<module>)" in finding.evidence


def test_where_no_step_repeats_its_first_run_costs_too():
    finding = found(python=python(tracing=0.6), graphs=graphs(traced=40, once=40))
    assert finding.gain == Gain(pytest.approx(0.48), pytest.approx(1.0))


def test_graphs_that_go_on_to_run_are_traced_once():
    parts = observation(python=python(tracing=0.1), graphs=graphs(traced=10, once=1))
    assert looked(Evidence(observation=parts)) == ()


def test_graphs_of_several_functions_are_not_one_traced_again():
    """An epoch's end: the last batch, validation and its last batch."""
    parts = observation(python=python(tracing=0.3), graphs=graphs(traced=3, once=3, again=2))
    assert looked(Evidence(observation=parts)) == ()


def test_the_first_tracing_is_no_finding():
    first = observation(python=python(tracing=0.6), graphs=graphs(traced=1))
    assert looked(Evidence(observation=first)) == ()


def test_the_calls_of_short_steps():
    finding = found(python=python(call=0.4))
    assert (finding.cause, finding.share) == ("tiny-steps", 0.4)
    assert "train.py:7" in finding.evidence


@pytest.mark.parametrize("activity", ["saving", "validation", "fit", "call", "reading", "python"])
def test_a_share_that_chance_may_have_made_is_none(activity):
    """6 % of 200 looks: one time in ten the truth is below 5 %."""
    parts = observation(python=python(**{activity: 0.06}))
    assert looked(Evidence(observation=parts)) == ()


def test_clusters_that_are_compiled_again_and_again():
    finding = found(graphs=graphs(compilations=40, compiling=6.0))
    assert finding.cause == "recompiling"
    assert finding.share == pytest.approx(6.0 / observation().seconds)
    assert "40 times" in finding.title


@pytest.mark.parametrize(("compilations", "compiling"), [(2, 6.0), (40, 0.1)])
def test_a_few_compilations_or_short_ones_are_none_of_it(compilations, compiling):
    few = observation(graphs=graphs(compilations=compilations, compiling=compiling))
    assert looked(Evidence(observation=few)) == ()


@pytest.mark.parametrize(
    ("activity", "cause"),
    [("saving", "checkpoints"), ("validation", "validation"), ("fit", "tiny-steps")],
)
def test_what_python_does_besides_steps(activity, cause):
    finding = found(python=python(**{activity: 0.4}))
    assert (finding.cause, finding.share) == (cause, 0.4)


@pytest.mark.parametrize("activity", ["saving", "validation"])
def test_what_may_have_been_the_only_time_is_told_of_the_watch(activity):
    looks = python(**{activity: 0.4})
    finding = found(python=looks)
    assert finding.title == f"{activity} takes 40% of the time (20 s of observation)"
    assert finding.gain == Gain(0.0, 0.4)
    torch = found(python=looks, processes=(process(framework="pytorch"),)).fix or ""
    assert "fit" not in torch
    assert "tf." not in torch


def test_figures_read_from_tensors():
    finding = found(python=python(reading=0.1, eager=0.2))
    assert finding.cause == "host-reads"
    assert finding.share == pytest.approx(0.3)


def test_a_job_without_graphs_runs_eagerly():
    finding = found(python=python(eager=0.6, python=0.4), graphs=graphs(eager=10.0))
    assert finding.cause == "eager"
    assert "single ops took 50% of the time" in finding.evidence


def test_a_generator_that_feeds_the_step():
    finding = found(python=python(generator=0.9, input=0.5))
    assert (finding.cause, finding.share) == ("python-input", 0.5)
    assert "at data.py:3 (rows)" in finding.evidence


def test_a_generator_whose_lock_the_main_thread_waits_for():
    first, *others = looked(
        Evidence(observation=observation(python=python(0.8, input=0.3, python=0.4)))
    )
    assert (first.cause, first.share) == ("python-input", pytest.approx(0.5))
    assert [other.share for other in others] == [pytest.approx(0.2)]


def test_an_input_pipeline_in_which_one_thread_works():
    finding = found(python=python(input=0.5), processes=(process(cpu=1.0),))
    assert (finding.cause, finding.share) == ("sequential-map", 0.5)


def test_the_call_of_an_op_that_asks_for_data_is_no_wait():
    """TensorFlow's of 0.6 ms, of which its kernel takes a tenth."""
    looks, main = python(input=0.2), (process(cpu=1.0),)
    for waited, told in ((0.4, []), (2.55, [0.15]), (None, [0.2]), (0.0, [0.2])):
        seen = observation(python=looks, processes=main, graphs=graphs(waited=waited))
        assert [one.share for one in looked(Evidence(observation=seen))] == pytest.approx(told)


def test_a_generators_lock_is_waited_for_by_the_caller_and_not_by_the_op():
    finding = found(python=python(generator=0.9, input=0.5), graphs=graphs(waited=0.1))
    assert (finding.cause, finding.share) == ("python-input", 0.5)


def test_a_few_looks_more_than_nothing_are_chance():
    few = observation(python=python(input=0.07), processes=(process(cpu=1.0),))
    assert looked(Evidence(observation=few)) == ()


def test_an_input_pipeline_that_takes_the_cpus_from_the_steps():
    finding = found(python=python(input=0.5), processes=(process(cpu=1.95),))
    assert (finding.cause, finding.share, finding.apply) == ("busy-input", 0.5, ())


def test_what_can_bring_little_comes_after_what_can_bring_more():
    eager = observation(
        python=python(eager=1.0),
        graphs=graphs(eager=0.6 * observation().seconds),
    )
    finding = looked(Evidence(observation=eager))[0]
    assert (finding.cause, finding.share) == ("eager", pytest.approx(0.4))


def test_ops_between_the_steps_are_not_told_as_figures_read():
    finding = found(python=python(eager=0.3))
    assert finding.cause == "host-reads"
    assert "runs single ops between the steps for 30%" in finding.title
    assert "reads values of tensors" in found(python=python(reading=0.3)).title


def test_a_quota_of_a_part_of_a_cpu_is_used_up():
    finding = found(host=host(quota=1.5, throttled=0.5), processes=(process(intra=16),))
    assert finding.apply == (Choice("threads", "2x2"),)
    enough = observation(host=host(quota=3.5, throttled=0.1), processes=(process(intra=4),))
    assert looked(Evidence(observation=enough)) == ()


def test_denormal_numbers_in_python():
    finding = found(python=python(python=0.5), graphs=graphs(denormal_looks=10, denormal=10))
    assert (finding.cause, finding.share, finding.confidence) == ("denormals", 0.5, "rule")
    assert "train.py:7" in finding.evidence
    now_and_then = graphs(denormal_looks=10, denormal=5)
    assert found(python=python(python=0.5), graphs=now_and_then).cause == "between-steps"
    in_little = observation(graphs=graphs(denormal_looks=10, denormal=10))
    assert looked(Evidence(observation=in_little)) == ()


def test_denormal_numbers_in_ops_of_pytorch():
    def seen(flushed: Ratio | None) -> Evidence:
        return Evidence(
            observation=observation(
                python=python(python=0.3, eager=0.5),
                graphs=graphs(denormal_looks=10, denormal=10, flushed=flushed),
                processes=(process(framework="pytorch"),),
            )
        )

    (most,) = looked(seen(None))
    assert most.apply == (Choice("denormals", "flushed"),)
    assert "PyTorch's ops compute with denormal numbers for up to 80% of the time" in most.title
    (tried,) = looked(seen(Ratio(pairs=20, low=0.28, median=0.3, high=0.33)))
    assert (tried.cause, tried.share, tried.confidence) == ("denormals", 0.7, "measured")
    assert tried.gain == Gain(pytest.approx(0.67), pytest.approx(0.72))
    assert looked(seen(Ratio(pairs=20, low=0.95, median=0.98, high=1.01))) == ()


def test_what_a_job_does_beside_its_steps():
    (step,) = profile(machine(2), (), {"train": []}).steps
    made = profile(machine(2), (), {"train": []})
    step = msgspec.structs.replace(step, parts=(Part("ops", 0.01),))
    made = analyse(msgspec.structs.replace(made, steps=(step,)))

    def told(steps: int, **looks: float) -> list[Finding]:
        busy = observation(graphs=graphs(steps=steps), python=python(**looks))
        return [one for one in looked(Evidence(busy, made)) if one.cause == "beside-steps"]

    (finding,) = told(1000, python=0.3, eager=0.7)
    assert finding.share == pytest.approx(0.5)
    assert finding.evidence.startswith(
        "1,000 steps of 10 ms make up 50% of the 20 s of observation"
    )
    assert "train.py:7 (<module>)" in finding.evidence
    assert told(1000, eager=0.6, validation=0.4) == [], "another rule tells of validation"
    assert told(1700) == []
    assert told(0) == [], "of graphs the steps are not counted"


@pytest.mark.parametrize(
    ("others", "queued", "throttled", "share"),
    [
        (0.9, 0.0, 0.0, 0.75),
        (0.9, 0.3, 0.0, 7 / 12),
        (0.9, 0.6, 0.0, None),
        (0.9, 1.8, 0.0, None),
        (0.0, 0.0, 0.4, 7 / 12),
        (0.0, 0.0, 0.7, None),
    ],
)
def test_steps_that_wait_for_a_cpu_are_steps(others, queued, throttled, share):
    """Their median is that of those which did not wait."""
    step = msgspec.structs.replace(
        profile(machine(2), (), {"train": []}).steps[0], parts=(Part("ops", 0.01),)
    )
    made = msgspec.structs.replace(profile(machine(2), (), {"train": []}), steps=(step,))
    crowded = observation(
        graphs=graphs(steps=500),
        processes=(process(cpu=0.45, queued=queued),),
        host=host(others=others, throttled=throttled),
        python=python(eager=1.0),
    )
    found = [one for one in looked(Evidence(crowded, analyse(made))) if one.cause == "beside-steps"]
    assert [one.share for one in found] == ([] if share is None else [pytest.approx(share)])
    if found and share != 0.75:
        assert (
            "500 steps of 10 ms make up 42% of the 12 s in which it had a CPU" in found[0].evidence
        )


def test_when_memory_ends():
    growing = process(growth=10.0 * MIB, resident=900 * MIB)
    finding = found(processes=(growing,), host=host(memory_limit=1000 * MIB))
    assert (finding.cause, finding.share) == ("growing-memory", None)
    assert "memory grows by 600 MiB per minute; at this rate it runs out in 10 s" in finding.title


def test_memory_that_grows_in_workers():
    worker = process(2, intra=None, growth=10.0 * MIB, resident=100 * MIB, cpu=0.5, parent=1)
    both = (process(resident=700 * MIB), worker, msgspec.structs.replace(worker, pid=3))
    finding = found(processes=both, host=host(memory_limit=1000 * MIB))
    assert "grows by 1200 MiB per minute; at this rate it runs out in 15 s" in finding.title
    assert finding.evidence.endswith("300 MiB are still available; 2 processes grow")
    filling = msgspec.structs.replace(worker, growth=0.4 * MIB)  # 8 of 100 in 20 s
    little = observation(processes=(process(), filling), host=host(memory_limit=1000 * MIB))
    assert looked(Evidence(observation=little)) == ()


def test_memory_that_grows_for_years_is_no_finding():
    slow = observation(processes=(process(growth=300.0 * 1024),), host=host(available=1 << 45))
    assert looked(Evidence(observation=slow)) == ()


def test_page_faults_of_an_allocator_that_gives_back():
    finding = found(processes=(process(faults=1e6, kernel=0.8),))
    assert finding.cause == "allocator-trim"
    assert finding.apply == (Choice("allocator", "glibc-keep"),)
    assert 0 < (finding.share or 0) <= 0.8 / 1.9
    idle = observation(processes=(process(faults=1e4, cpu=0.04, kernel=0.03),))
    assert looked(Evidence(observation=idle)) == ()


def test_the_most_costly_comes_first_and_what_costs_no_time_last():
    every = looked(
        Evidence(
            observation=observation(
                python=python(saving=0.2, validation=0.5),
                processes=(process(growth=10.0 * MIB),),
            )
        )
    )
    assert [one.cause for one in every] == ["validation", "checkpoints", "growing-memory"]


@pytest.mark.parametrize(
    ("framework", "variable"),
    [("tensorflow", "TF_NUM_INTRAOP_THREADS=1"), ("pytorch", "OMP_NUM_THREADS=1")],
)
def test_more_threads_than_a_set_of_cores_has(framework, variable):
    inside = host(cpus=(0,), online=2)
    main = process(cpus=(0,), intra=16, cpu=1.0, queued=9.0, framework=framework)
    finding = found(host=inside, processes=(main,))
    assert (finding.cause, finding.share) == ("narrow-affinity", 0.9 * (1 - 0.01))
    assert f"set 1 intra-op thread ({variable})" in (finding.fix or "")
    assert finding.apply == (Choice("threads", "1x1"),)


def test_a_control_group_at_its_limit():
    finding = found(
        host=host(memory_limit=1000 * MIB, reclaims=200_000.0),
        processes=(process(cpu=1.0, kernel=0.9),),
    )
    assert (finding.cause, finding.share) == ("memory-pressure", 0.9)
    assert "limit of 1,000 MiB 200,000 times per second" in finding.evidence
    assert finding.confidence == "modelled"
