"""Several processes of the job, each with threads for all cores."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.cores.allowed import allowed_together, as_usual
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.findings.thread_settings import intra_op

# threads that want a core, over cores; cores that a process wants which works
CROWDED, WORKS = 1.25, 0.1


@rule(
    "crowded-processes",
    "cores",
    summary="Several processes of the job each use threads for all CPUs, so their threads wait "
    "for one another.",
    fix="Divide the CPUs among the processes: set fewer threads in each (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS).",
    order=1,
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost, at most: the time that threads of the processes that train were ready and had no
    core, of all that they wanted, but where others had it."""
    observation = seen.observation
    if observation is None:
        return
    trains = [
        one
        for one in observation.processes
        if one.intra is not None and one.cpu + (one.queued or 0.0) >= WORKS
    ]
    cores = allowed_together(observation)
    wanted = sum(one.cpu + (one.queued or 0.0) for one in trains)
    threads = sum(one.intra or 0 for one in trains)
    if len(trains) < 2 or threads <= cores or wanted < CROWDED * cores:
        return
    queued = sum(one.queued or 0.0 for one in trains)
    share = queued / wanted * (1 - observation.disturbed)
    each = max(1, cores // len(trains))
    # OpenMP's serves libraries beside TensorFlow, too
    variables = [*(intra_op(one.framework, each) for one in trains), f"OMP_NUM_THREADS={each}"]
    yield Finding(
        title=f"{len(trains)} processes use {threads} intra-op threads in total on {cores} CPU"
        + "s" * (cores > 1),
        evidence=f"their threads had work for {wanted:.1f} CPUs on average and waited for "
        f"{queued:.1f} of them (pid {', '.join(str(one.pid) for one in trains[:8])})",
        fix=f"set {each} intra-op thread{'s' * (each > 1)} in each process: "
        f"{' '.join(dict.fromkeys(variables))}",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", as_usual(each, trains[0].inter)),),
        try_next=("threads",),
    )
