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
    summary="Steps that wait for PyTorch's DataLoader.",
    fix="",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the time that steps waited, but for storage. The least gain: of CPUs that are idle
    half can be had for it, for the step's own ops are not always as many. Workers: as many as
    prepare a batch in the time of a step, a CPU each."""
    observation = seen.observation
    main = observation.main if observation else None
    share = input_share(seen) - (storage_share(seen) or 0.0)
    if observation is None or main is None or seen.framework != "pytorch" or share < WAITS:
        return
    others = [one for one in observation.descendants(main) if one.framework == "pytorch"]
    workers = [one for one in others if one.cpu >= WORKS]
    room = math.floor(observation.room(main))
    more = max(1, min(room, math.ceil(share / max(1.0 - share, WAITS))))
    choices: tuple[Choice, ...] = ()
    at = where(shares(seen)["input"]) if "input" in shares(seen) else ""
    if others and not workers:
        title = f"steps wait {share:.0%} of the time for workers of the DataLoader that stand still"
        pids = ", ".join(str(one.pid) for one in others)
        evidence = f"pid {pids} used no CPU, and the main thread was in its DataLoader{at}"
        cure = (
            f"py-spy dump --pid {others[0].pid} tells where one stands: at a lock, storage or a "
            "network; DataLoader(timeout=60) has the job fail instead of wait for ever"
        )
    elif workers:
        busy = sum(one.cpu for one in workers)
        title = f"steps wait {share:.0%} of the time for the DataLoader's workers"
        evidence = (
            f"{len(workers)} of them used {busy:.2f} CPUs, the process that trains {main.cpu:.2f}"
        )
        cure = (
            "more workers, as far as CPUs are idle; whole batches at a time (the dataset's "
            "__getitems__); less work for an example, done once and kept"
        )
    else:
        title = f"steps wait {share:.0%} of the time for data, which their own process prepares"
        evidence = f"the main thread was in its DataLoader{at}, and no op of a step ran"
        cure = (
            f"DataLoader(num_workers={more}, persistent_workers=True) prepares the next batches "
            "while a step runs; where its own threads have all CPUs, fewer of those too "
            "(torch.set_num_threads), for each waits for all; or prepare what is alike in each "
            "epoch once"
        )
        if observation.idle(main) >= IDLE:
            choices = (Choice("input_workers", str(more)),)
    yield Finding(
        cause="loader-wait",
        title=title,
        evidence=evidence,
        fix=cure,
        share=share,
        gain=Gain(min(share, 0.5 * observation.idle(main, *workers)), share),
        confidence="modelled",
        apply=choices,
        try_next=("input_prefetch" if others else "input_workers", "threads"),
    )
