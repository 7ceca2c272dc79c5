"""Findings about steps that wait for the preparation of their data.

Steps can wait for PyTorch's DataLoader, for an input pipeline that uses one thread, for an input
pipeline while no CPU is idle, or for a Python generator. If the job was not observed, the rule
`input-wait` reports the wait according to a profile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.analysis.step_parts import part, unrecorded
from dltune.findings.evidence import (
    IDLE,
    MIN_GENERATOR,
    MIN_WAIT,
    Evidence,
    activity_shares,
    at_line,
    input_share,
    lock_share,
    preparation_share,
    storage_share,
)
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.settings import Choice

# share of the wall time; smaller shares vary with other load of the machine
MIN_INPUT_WAIT = 0.03


@rule(
    "input-wait",
    "data",
    summary="Steps wait for their data, according to a profile.",
    fix="Prefetch, and prepare several elements in parallel in the input pipeline.",
    frameworks=("tensorflow",),
    order=1,
)
def input_wait(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for data. The cost is the time of the waits. If the job was observed, other rules
    report the reason of the waits."""
    if evidence.profile is None or evidence.main:
        return
    profile = evidence.profile.profile
    share = part(profile, "input")
    if share < MIN_INPUT_WAIT:
        return
    yield Finding(
        title=f"ops wait for data in {share:.0%} of the wall time",
        evidence="no other op ran during these waits",
        fix="prefetch and use parallel calls in the input pipeline, so that the next batch is "
        "prepared while a step runs (this needs idle CPUs)",
        seconds=share * unrecorded(profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
        apply=(Choice("input_prefetch", "auto"),),
        try_next=("input_prefetch", "input_threads"),
    )


MIN_CPU = 0.02  # CPUs that a worker uses if it prepares data


@rule(
    "loader-wait",
    "data",
    summary="Steps wait for PyTorch's DataLoader.",
    fix="Start workers (num_workers), add workers while CPUs are idle, or do less work per sample.",
    frameworks=("pytorch",),
    order=1,
)
def loader_wait(evidence: Evidence) -> Iterator[Finding]:
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


@rule(
    "sequential-map",
    "data",
    summary="Steps wait for an input pipeline that uses one thread.",
    fix="Use map(..., num_parallel_calls=tf.data.AUTOTUNE), and prefetch at the end.",
    frameworks=("tensorflow",),
    order=1,
)
def sequential_map(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for preparation. The cost is the time of the waits while CPUs were idle."""
    observation = evidence.observation
    main = evidence.main
    share = preparation_share(evidence)
    if observation is None or main is None or share is None:
        return
    idle = observation.idle(main)
    if idle < IDLE:
        return
    yield Finding(
        title=f"steps wait for the input pipeline {share:.0%} of the time",
        evidence=f"the job used {main.cpu:.2f} of {observation.room(main):g} CPUs, and its "
        "pipeline prepares one element after the other",
        fix="use map(..., num_parallel_calls=tf.data.AUTOTUNE), and .prefetch(tf.data.AUTOTUNE) at "
        "the end; cache() data that repeats in each epoch",
        share=share,
        gain=Gain(min(share, 0.5 * idle), share),
        confidence="modelled",
        apply=(Choice("input_prefetch", "auto"),),
        try_next=("input_prefetch", "input_threads"),
    )


@rule(
    "busy-input",
    "data",
    summary="Steps wait for the input pipeline, and no CPU is idle.",
    fix="Prepare less in each step: decode to the needed size, cache, or prepare the data once.",
    frameworks=("tensorflow",),
    order=1,
)
def busy_input(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for preparation. The cost is at most the time for which steps waited for data."""
    observation = evidence.observation
    main = evidence.main
    share = preparation_share(evidence)
    if observation is None or main is None or share is None or observation.idle(main) >= IDLE:
        return
    yield Finding(
        title=f"steps wait for the input pipeline {share:.0%} of the time, and no CPU is idle",
        evidence=f"the job used {main.cpu:.2f} of {observation.room(main):g} CPUs, and preparing "
        "data takes them from the steps",
        fix="prepare less in each step: decode to the needed size, cache() data that repeats in "
        "each epoch, or prepare the data once and store it in files",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        try_next=("input_threads",),
    )


@rule(
    "python-input",
    "data",
    summary="Steps wait for a Python generator.",
    fix="Prepare the data with tf.data ops or in several processes, or let the generator return "
    "whole batches.",
    frameworks=("tensorflow",),
    order=1,
)
def python_input(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for a generator. The cost is the time of these waits and of waits for its lock."""
    python = evidence.python
    share = input_share(evidence)
    if python is None or share < MIN_WAIT or python.generator < MIN_GENERATOR:
        return
    share = min(1.0, share + lock_share(evidence))
    location = f" at {python.generator_lines[0].where}" if python.generator_lines else ""
    yield Finding(
        title=f"steps wait for a Python generator {share:.0%} of the time",
        evidence=f"the generator ran in {python.generator:.0%} of samples{location}, one element "
        "at a time, holding the interpreter's lock",
        fix="prepare the data with tf.data's own ops, or in several processes; or let the "
        "generator return whole batches, and prefetch",
        share=share,
        gain=Gain(0.5 * share, share),
        confidence="measured",
        try_next=("input_prefetch",),
    )
