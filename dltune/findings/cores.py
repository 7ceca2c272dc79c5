"""Findings about the cores of a job: too few cores, too many threads, and other processes.

The rules find a job that can run on only some of the cores, more threads than there are cores, more
threads than the quota of the control group allows, several processes that each have threads for all
cores, and other processes or virtual machines that use the job's cores.

Other rules also use the thread settings in the words of the job's framework, and the thread counts
that the CPUs and the control group of the job allow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.analysis.roofline import Analysis
from dltune.analysis.step_parts import unrecorded, working
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.frameworks.capabilities import TENSORFLOW, Framework, framework
from dltune.schemas.diagnosis import Finding, Gain, Observation, Process
from dltune.schemas.settings import Choice
from dltune.system.kernel_files import format_cpulist


# Thread settings in the words of a job's framework
def advised(name: str | None) -> Framework:
    """Return the framework whose settings are advised: TensorFlow without advice for the job's."""
    job = framework(name)
    return job if job.thread_variables else TENSORFLOW


def intra_op_setting(name: str | None, threads: int) -> str:
    """Return the setting for this number of threads within an op."""
    variables = advised(name).thread_variables
    return next(f"{variable}={threads}" for variable, number in variables if number == "intra")


def sequential_setting(name: str | None, threads: int) -> str:
    """Return the settings for this number of threads within an op, with one op at a time."""
    variables = advised(name).thread_variables
    one_op = [f"{variable}=1" for variable, number in variables if number == "inter"]
    return " ".join([intra_op_setting(name, threads), *one_op])


def advise_intra_op(name: str | None, threads: int) -> str:
    """Return a fix such as "set 2 intra-op threads (OMP_NUM_THREADS=2)"."""
    setting = intra_op_setting(name, threads)
    return f"set {threads} intra-op thread{'s' * (threads > 1)} ({setting})"


def describe_threads(process: Process) -> str:
    """Return the threads of a process: "TensorFlow uses 4 intra-op and 2 inter-op threads"."""
    used = framework(process.framework) if process.framework else TENSORFLOW
    if used.runs_ops_in_parallel:
        return f"{used.title} uses {process.intra} intra-op and {process.inter} inter-op threads"
    return f"{used.title} uses {process.intra} threads for an op"


# Thread counts that the CPUs and the control group of a job allow
def thread_limit(observation: Observation) -> int:
    """Return the number of CPUs on which the training process can run, at most its quota."""
    main = observation.main
    return _within_quota(observation, len(main.cpus) if main and main.cpus else observation.cores)


def job_thread_limit(observation: Observation) -> int:
    """Return the number of CPUs on which any process of the job can run, at most the quota."""
    return _within_quota(observation, observation.cores)


def _within_quota(observation: Observation, cpus: int) -> int:
    quota = observation.host.quota
    return max(1, min(cpus, math.floor(quota if quota is not None else cpus)))


def default_threads(threads: int, inter: int | None) -> str:
    """Return the value of the setting `threads` that equals TensorFlow's default on so many CPUs,
    with at most the job's inter-op threads."""
    return f"{threads}x{min(threads, inter or threads)}"


def crowding_share(observation: Observation) -> float:
    """Return the share of the CPU time needed by the training process for which its threads waited
    for one another; 0 if it has at most one thread per CPU."""
    main = observation.main
    if main is None or (main.intra or 0) <= len(main.cpus):
        return 0.0
    return main.waited * (1 - observation.disturbed)


# share of its cores that a job uses if it can use more
BUSY = 0.7


@rule(
    "narrow-affinity",
    "cores",
    summary="The job can run on only some of the CPUs, or uses more threads than it has CPUs.",
    fix="Remove the binding (taskset, numactl, the launcher's option, os.sched_setaffinity), or "
    "set the thread count to the number of allowed CPUs.",
)
def narrow_affinity(evidence: Evidence) -> Iterator[Finding]:
    """Find missing cores or too many threads. The cost of missing cores is their share of all
    cores. If no more cores are available, the cost is the wait of the threads for one another."""
    observation = evidence.observation
    main = evidence.main
    if observation is None or main is None or not main.cpus:
        return
    allowed, available = len(main.cpus), len(observation.host.cpus)
    # the second hyperthread of a core adds little
    host = observation.host
    share = 1 - host.cores(main.cpus) / min(host.cores(host.cpus), host.quota or math.inf)
    if allowed >= available or share <= 0:
        yield from _too_many(observation, main)
        return
    if main.cpu < BUSY * allowed or main.ranks is not None:
        return
    yield Finding(
        title=f"the job can run on only {allowed} of {available} CPUs",
        evidence=f"pid {main.pid} is bound to CPU {format_cpulist(main.cpus)}, although CPUs "
        f"{format_cpulist(observation.host.cpus)} are available; its threads used {main.cpu:.2f} "
        "cores",
        fix="start the job without taskset, numactl or the launcher's binding (mpirun --bind-to "
        "none, srun --cpu-bind=none), and remove os.sched_setaffinity from the script, unless "
        "the binding is intended",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )


def _too_many(observation: Observation, main: Process) -> Iterator[Finding]:
    allowed, online = len(main.cpus), observation.host.online
    share = crowding_share(observation)
    if allowed >= online or share <= 0:
        return
    yield Finding(
        title=f"ops use {main.intra} threads, but the job can run on only {allowed} of {online} "
        "CPUs",
        evidence=f"the job is bound to CPU {format_cpulist(main.cpus)}; its threads were ready but "
        f"had no CPU for {main.waited:.0%} of the CPU time they needed",
        fix=f"{advise_intra_op(main.framework, allowed)}, or give the container more CPUs",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", default_threads(allowed, main.inter)),),
        try_next=("threads",),
    )


# runnable threads per core
CROWDED = 1.25
# cores; a process that needs fewer is idle
MIN_CORES = 0.1


@rule(
    "crowded-processes",
    "cores",
    summary="Several processes of the job each use threads for all CPUs, so their threads wait "
    "for one another.",
    fix="Divide the CPUs among the processes: set fewer threads in each (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS).",
    order=1,
)
def crowded_processes(evidence: Evidence) -> Iterator[Finding]:
    """Find training processes whose threads wait for one another. The cost is at most the share of
    their needed CPU time for which they waited, without the CPU time of other jobs."""
    observation = evidence.observation
    if observation is None:
        return
    training = [
        process
        for process in observation.processes
        if process.intra is not None and process.cpu + (process.queued or 0.0) >= MIN_CORES
    ]
    cores = job_thread_limit(observation)
    needed = sum(process.cpu + (process.queued or 0.0) for process in training)
    threads = sum(process.intra or 0 for process in training)
    if len(training) < 2 or threads <= cores or needed < CROWDED * cores:
        return
    queued = sum(process.queued or 0.0 for process in training)
    share = queued / needed * (1 - observation.disturbed)
    each = max(1, cores // len(training))
    # OpenMP's variable also applies to libraries other than TensorFlow
    variables = [
        *(intra_op_setting(process.framework, each) for process in training),
        f"OMP_NUM_THREADS={each}",
    ]
    yield Finding(
        title=f"{len(training)} processes use {threads} intra-op threads in total on {cores} CPU"
        + "s" * (cores > 1),
        evidence=f"their threads had work for {needed:.1f} CPUs on average and waited for "
        f"{queued:.1f} of them (pid {', '.join(str(process.pid) for process in training[:8])})",
        fix=f"set {each} intra-op thread{'s' * (each > 1)} in each process: "
        f"{' '.join(dict.fromkeys(variables))}",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", default_threads(each, training[0].inter)),),
        try_next=("threads",),
    )


THROTTLED = 0.05  # share of the time


@rule(
    "threads-over-quota",
    "cores",
    summary="Ops use more threads than the CPU quota allows, or than there are CPUs, so the kernel "
    "stops them or they wait.",
    fix="Set the thread count to the number of CPUs in the quota (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS), or raise the quota.",
)
def threads_over_quota(evidence: Evidence) -> Iterator[Finding]:
    """Find more threads than the quota or the cores. The cost is at most the time for which the
    kernel stopped the group. Part of it remains, because the same work needs the same CPU time; the
    fix removes waits at the end of ops for a stopped thread. Without an observation of the job, the
    cost is the difference of the measured op times on both thread counts."""
    if evidence.observation:
        yield from _observed(evidence.observation)
    elif evidence.profile:
        yield from _profiled(evidence.profile)


def _observed(observation: Observation) -> Iterator[Finding]:
    main = observation.main
    if main is None or main.intra is None:
        return
    quota, throttled = observation.host.quota, observation.host.throttled
    if quota is None or throttled is None or throttled < THROTTLED:
        return
    # a thread that is stopped from time to time uses up the rest of the quota
    allowed = max(1, math.ceil(quota))
    stopped = (
        f"the kernel stopped the job's threads for {throttled:.0%} of the time, because they had "
        "used up the quota"
    )
    if quota < main.intra <= allowed:
        return
    if main.intra <= quota:
        total = sum(process.threads for process in observation.processes)
        yield Finding(
            title=f"the job uses up its quota of {_cpus(quota)}",
            evidence=f"{stopped}; an op uses {main.intra} of the job's {total} threads",
            fix="raise the container's CPU quota, or reduce the work next to the ops, for "
            "example the number of workers that prepare data",
            share=throttled,
            gain=Gain(0.0, throttled),
            confidence="modelled",
        )
        return
    yield Finding(
        title=f"ops use {main.intra} threads, but the quota allows {_cpus(quota)}",
        evidence=f"{stopped}; {describe_threads(main)}",
        fix=f"{advise_intra_op(main.framework, allowed)}, or raise the container's CPU quota",
        share=throttled,
        gain=Gain(0.0, throttled),
        confidence="modelled",
        apply=(Choice("threads", default_threads(allowed, main.inter)),),
        try_next=("threads",),
    )


def _profiled(analysis: Analysis) -> Iterator[Finding]:
    profile = analysis.profile
    machine, intra = profile.machine, profile.settings.intra
    cores = len(machine.cores)
    right = max(1, min(cores, math.floor(machine.quota or cores)))
    if intra <= right:
        return
    limit = (
        f"the {cores} cores"
        if machine.quota is None or right == cores
        else f"the quota of {_cpus(machine.quota)}"
    )
    before, after = _serial(analysis, min(intra, cores)), _serial(analysis, right)
    share = None
    details = "dltune did not measure how much time this costs"
    if before and after and right < min(intra, cores):
        details = (
            f"one at a time, the ops take {after * 1e3:.3g} ms on {right} and {before * 1e3:.3g} "
            f"ms on {min(intra, cores)} threads"
        )
        share = max(0.0, 1 - after / before) * working(profile)
    yield Finding(
        title=f"ops use {intra} threads, more than {limit}",
        evidence=details,
        fix=f"set {right} thread{'s' * (right > 1)} "
        f"({intra_op_setting(profile.framework.name, right)}), so that none waits for a CPU",
        seconds=None if share is None else share * unrecorded(profile),
        share=share,
        gain=None if share is None else Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", default_threads(right, profile.settings.inter)),),
        try_next=("threads",),
    )


def _cpus(quota: float) -> str:
    return f"{quota:g} CPU{'s' * (quota != 1)}"


def _serial(analysis: Analysis, count: int) -> float | None:
    """Return the seconds of all ops of a step on `count` threads; None if an op was not measured
    with this count."""
    total = 0.0
    for figures in analysis.ops:
        if figures.cases:
            seconds = figures.on(count)
            if seconds is None:
                return None
            total += seconds * figures.op.count
    return total


MIN_TAKEN = 0.05  # of the cores


@rule(
    "neighbour",
    "cores",
    summary="Other processes, or other virtual machines on the same host, use the job's CPUs.",
    fix="Stop the other processes or bind them to other CPUs (taskset), or move the job to a "
    "dedicated machine.",
)
def neighbour(evidence: Evidence) -> Iterator[Finding]:
    """Find other processes and stolen time. The cost is the share of the job's cores that they
    used, at most the share for which the job waited."""
    observation = evidence.observation
    main = evidence.main
    if observation is None or main is None:
        return
    host, cores = observation.host, observation.cores
    share = _share(observation, main)
    if share >= MIN_TAKEN:
        names = ", ".join(
            f"{_short(other.command)} (pid {other.pid}, {other.cpu:.2f} cores)"
            for other in host.neighbours
        )
        which = (
            f"the largest of them: {names}"
            if names
            else "they are small, or not visible from inside this container"
        )
        # threads that wait for each other at the end of each op lose the most next to others
        free = _fewer_threads(observation, main)
        advice = (
            f"{advise_intra_op(main.framework, free)}, for the CPUs that are free"
            if free
            else "give the job fewer threads"
        )
        yield Finding(
            title=f"other processes use {host.others:.1f} of the job's {cores} CPUs",
            evidence=f"{which}; the job's threads were ready but had no CPU for {main.waited:.0%} "
            "of the CPU time they needed",
            fix="stop these processes, bind them to other CPUs (taskset), or run them on another "
            f"machine; if they must stay, {advice}",
            share=share,
            gain=Gain(0.0, share),
            confidence="measured",
            apply=(Choice("threads", default_threads(free, main.inter)),) if free else (),
            try_next=("threads",),
        )
    stolen = host.stolen / host.online
    if stolen >= MIN_TAKEN:
        yield Finding(
            title=f"the hypervisor gives {stolen:.0%} of this machine's CPU time to other virtual "
            "machines",
            evidence=f"steal time was {host.stolen:.2f} of {host.online} CPUs during "
            f"{observation.seconds:.0f} s",
            fix="use a machine with dedicated CPUs, or run the job at another time",
            share=stolen,
            gain=Gain(0.0, stolen),
            confidence="measured",
        )


def neighbour_wait(observation: Observation) -> float:
    """Return the share of the time for which the job waited for CPUs that other processes used; 0
    if these processes are no finding."""
    main = observation.main
    return main.waited if main and _share(observation, main) >= MIN_TAKEN else 0.0


def _lost_cpus(observation: Observation) -> float:
    """Return how many of the CPUs due to the job other processes use. A CPU beyond the quota is no
    loss."""
    return max(0.0, observation.host.others - (observation.cores - _due_cpus(observation)))


def _due_cpus(observation: Observation) -> float:
    return min(observation.cores, observation.host.quota or observation.cores)


def _fewer_threads(observation: Observation, main: Process) -> int | None:
    """Return the number of CPUs that other processes leave free if ops use more threads; None where
    all CPUs are about free, because other rules decide about threads there."""
    limit = thread_limit(observation)
    free = max(1, round(limit - _lost_cpus(observation)))
    return free if free < limit and (main.intra or 0) > free else None


def _share(observation: Observation, main: Process) -> float:
    """Return the share of the job's CPU time that other processes took: at most the share for
    which it waited, if that is known."""
    waited = main.waited if main.queued is not None else 1.0
    return min(_lost_cpus(observation) / _due_cpus(observation), waited)


def _short(command: str) -> str:
    return command if len(command) <= 60 else command[:57] + "..."
