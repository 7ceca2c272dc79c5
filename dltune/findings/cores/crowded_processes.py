"""Several processes of the job that each have threads for all cores."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.cores.thread_limits import default_threads, job_thread_limit
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.findings.thread_settings import intra_op_setting
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.settings import Choice

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
def find(evidence: Evidence) -> Iterator[Finding]:
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
