"""Steps that wait for PyTorch's DataLoader."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.findings.data.waits import IDLE, MIN_WAIT, input_share, storage_share
from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import activity_shares, at_line
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.settings import Choice

MIN_CPU = 0.02  # CPUs that a worker uses if it prepares data


@rule(
    "loader-wait",
    "data",
    summary="Steps wait for PyTorch's DataLoader.",
    fix="Start workers (num_workers), add workers while CPUs are idle, or do less work per sample.",
    frameworks=("pytorch",),
    order=1,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for the DataLoader. The cost is the time of the waits, except those for storage.
    The lowest gain assumes that half of the idle CPUs are available, because the number of busy
    CPUs varies in a step. The suggested workers prepare a batch in the time of a step, on a CPU
    each."""
    observation = evidence.observation
    main = evidence.main
    share = input_share(evidence) - (storage_share(evidence) or 0.0)
    if observation is None or main is None or evidence.framework is None or share < MIN_WAIT:
        return
    children = [
        child for child in observation.descendants(main) if child.framework == evidence.framework
    ]
    workers = [worker for worker in children if worker.cpu >= MIN_CPU]
    room = math.floor(observation.room(main))
    needed = max(1, min(room, math.ceil(share / max(1.0 - share, MIN_WAIT))))
    choices: tuple[Choice, ...] = ()
    samples = activity_shares(evidence).get("input")
    line = at_line(samples) if samples else ""
    if children and not workers:
        title = f"steps wait {share:.0%} of the time for DataLoader workers that hang"
        pids = ", ".join(str(child.pid) for child in children)
        details = f"pid {pids} used no CPU, and the main thread waited in its DataLoader{line}"
        fix = (
            f"run py-spy dump --pid {children[0].pid} to see the line: a lock, storage or a "
            "network; DataLoader(timeout=60) makes the job fail instead of waiting forever"
        )
    elif workers:
        busy = sum(worker.cpu for worker in workers)
        title = f"steps wait {share:.0%} of the time for the DataLoader's workers"
        details = (
            f"{len(workers)} worker{'s' * (len(workers) > 1)} used {busy:.2f} CPUs, and the "
            f"training process {main.cpu:.2f}"
        )
        fix = (
            "add workers while CPUs are idle; prepare whole batches at a time (the dataset's "
            "__getitems__); do less work per sample, or do it once and store the result"
        )
    else:
        title = (
            f"steps wait {share:.0%} of the time for data that the training process itself prepares"
        )
        details = f"the main thread was in its DataLoader{line}, while no op of a step ran"
        fix = (
            f"use DataLoader(num_workers={needed}, persistent_workers=True), which prepares the "
            "next batches while a step runs; if ops use all CPUs, also reduce their threads "
            "(torch.set_num_threads); or prepare data that repeats in each epoch once"
        )
        if observation.idle(main) >= IDLE:
            choices = (Choice("input_workers", str(needed)),)
    yield Finding(
        title=title,
        evidence=details,
        fix=fix,
        share=share,
        gain=Gain(min(share, 0.5 * observation.idle(main, *workers)), share),
        confidence="modelled",
        apply=choices,
        try_next=("input_prefetch" if children else "input_workers", "threads"),
    )
