"""Steps that wait for PyTorch's DataLoader."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.data.waits import IDLE, WAITS, input_share, storage_share
from dltune.findings.looked import shares, where
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

WORKS = 0.02  # CPUs that a worker has which prepares something


@rule(
    "loader-wait",
    "data",
    summary="Steps wait for PyTorch's DataLoader.",
    fix="Start workers (num_workers), add workers while CPUs are idle, or do less work per sample.",
    frameworks=("pytorch",),
    order=1,
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the time that steps waited, but for storage. The least gain: of CPUs that are idle
    half can be had for it, for the step's own ops are not always as many. Workers: as many as
    prepare a batch in the time of a step, a CPU each."""
    observation = seen.observation
    main = observation.main if observation else None
    share = input_share(seen) - (storage_share(seen) or 0.0)
    if observation is None or main is None or seen.framework is None or share < WAITS:
        return
    others = [one for one in observation.descendants(main) if one.framework == seen.framework]
    workers = [one for one in others if one.cpu >= WORKS]
    room = math.floor(observation.room(main))
    more = max(1, min(room, math.ceil(share / max(1.0 - share, WAITS))))
    choices: tuple[Choice, ...] = ()
    at = where(shares(seen)["input"]) if "input" in shares(seen) else ""
    if others and not workers:
        title = f"steps wait {share:.0%} of the time for DataLoader workers that hang"
        pids = ", ".join(str(one.pid) for one in others)
        evidence = f"pid {pids} used no CPU, and the main thread waited in its DataLoader{at}"
        cure = (
            f"run py-spy dump --pid {others[0].pid} to see the line: a lock, storage or a network; "
            "DataLoader(timeout=60) makes the job fail instead of waiting forever"
        )
    elif workers:
        busy = sum(one.cpu for one in workers)
        title = f"steps wait {share:.0%} of the time for the DataLoader's workers"
        evidence = (
            f"{len(workers)} worker{'s' * (len(workers) > 1)} used {busy:.2f} CPUs, and the "
            f"training process {main.cpu:.2f}"
        )
        cure = (
            "add workers while CPUs are idle; prepare whole batches at a time (the dataset's "
            "__getitems__); do less work per sample, or do it once and store the result"
        )
    else:
        title = (
            f"steps wait {share:.0%} of the time for data that the training process itself prepares"
        )
        evidence = f"the main thread was in its DataLoader{at}, while no op of a step ran"
        cure = (
            f"use DataLoader(num_workers={more}, persistent_workers=True), which prepares the next "
            "batches while a step runs; if ops use all CPUs, also reduce their threads "
            "(torch.set_num_threads); or prepare data that repeats in each epoch once"
        )
        if observation.idle(main) >= IDLE:
            choices = (Choice("input_workers", str(more)),)
    yield Finding(
        title=title,
        evidence=evidence,
        fix=cure,
        share=share,
        gain=Gain(min(share, 0.5 * observation.idle(main, *workers)), share),
        confidence="modelled",
        apply=choices,
        try_next=("input_prefetch" if others else "input_workers", "threads"),
    )
