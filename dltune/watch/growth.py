"""A test that tells steady growth of memory from an allocator that still fills."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence

import msgspec

from dltune.findings.memory.growing_memory import MIN_WATCH, may_be_filling
from dltune.job.launch import Job
from dltune.schemas.diagnosis import Observation
from dltune.system.proc import process

# least samples of memory, and the share of first samples skipped while a job allocates its base
LEAST_SIZES, FILLING = 3, 0.3
# what grows steadily: its slopes are at most so many times each other's, and so large a share of
# looks, a ninth of the watch or so many seconds apart, sees more than the one before
ALIKE, THROUGHOUT, APART = 3.0, 0.75, 2.0
# seconds of a second measurement, and between its samples
AGAIN, PAUSE = 20.0, 0.25


def growth(sizes: Sequence[tuple[float, int]]) -> float | None:
    """Return the steady growth of memory in bytes per second: the least of the slopes of its
    thirds; negative if it shrinks in each. 0 if they differ, or if it is mostly constant: an
    allocator that still fills grows less and less, and by leaps. None if there are too few samples.
    `sizes`: times, and numbers of bytes."""
    kept = sizes[round(FILLING * len(sizes)) :]
    third = len(kept) // 3
    if third < LEAST_SIZES:
        return None
    slopes = [_slope(kept[at * third : (at + 1) * third]) for at in range(3)]
    least, *_, most = sorted(slopes, key=abs)
    steady = abs(most) <= ALIKE * abs(least) and least * most >= 0
    pause = (kept[-1][0] - kept[0][0]) / (len(kept) - 1)
    apart = max(third // 3, min(third, round(APART / pause)))
    pairs = zip(kept[:-apart], kept[apart:], strict=True)
    moved = [(after - before) * least > 0 for (_, before), (_, after) in pairs]
    return least if steady and sum(moved) >= THROUGHOUT * len(moved) else 0.0


def _slope(sizes: Sequence[tuple[float, int]]) -> float:
    """Return the median slope between any two of the sizes (Theil, 1950; Sen, 1968)."""
    return statistics.median(
        (b - a) / (then - now) for (now, a), (then, b) in itertools.combinations(sizes, 2)
    )


def unsettled(observation: Observation) -> Observation:
    """Return the observation without a doubtful growth of the main process, and with a note."""
    main = observation.main
    if main is None or not may_be_filling(main):
        return observation
    return _with_growth(
        observation,
        None,
        f"memory growth: memory grew by {(main.growth or 0.0) * 60 / 2**20:.0f} MiB per minute, "
        "which can also be an allocator that is still filling up; a longer run (another "
        f"{AGAIN:.0f} s) can distinguish the two",
    )


def looked_at_again(
    observation: Observation, job: Job, left: float, tell: Callable[[float], None]
) -> Observation:
    """Return the observation after a second measurement of a doubtful growth of the main process:
    at most the first growth. If `left`, in seconds, is too little for it, or the job ended, return
    it `unsettled`. `tell` receives the seconds that remain."""
    main = observation.main
    if main is None or not may_be_filling(main) or left < MIN_WATCH:
        return unsettled(observation)
    sizes: list[tuple[float, int]] = []
    until = time.monotonic() + min(left, AGAIN)
    for _ in job.events(PAUSE):
        if (now := time.monotonic()) >= until:
            break
        if not sizes or now >= sizes[-1][0] + PAUSE:
            sizes.append((now, process.anonymous(main.pid)))
            tell(until - now)
    now_grows = growth(sizes)
    if now_grows is None or job.exit_code is not None:
        return unsettled(observation)
    return _with_growth(observation, max(0.0, min(now_grows, main.growth or 0.0)))


def _with_growth(observation: Observation, growth: float | None, *unseen: str) -> Observation:
    """Return the observation with this growth of its main process."""
    main = observation.main
    processes = tuple(
        msgspec.structs.replace(one, growth=growth) if one is main else one
        for one in observation.processes
    )
    told = (*observation.unseen, *unseen)
    return msgspec.structs.replace(observation, processes=processes, unseen=told)
