"""The space of settings: a file for each group of entries."""

from __future__ import annotations

import difflib

from dltune.errors import UsageError
from dltune.planners.settings.setting import Setting
from dltune.planners.settings.space.affinity import AFFINITY
from dltune.planners.settings.space.allocator import ALLOCATOR
from dltune.planners.settings.space.kernels import (
    JIT_COMPILE,
    ONEDNN,
    ONEDNN_CALLER,
    ONEDNN_MATH,
    ONEDNN_PRIMITIVES,
    XLA,
)
from dltune.planners.settings.space.pipeline import INPUT_ORDER, INPUT_PREFETCH, INPUT_THREADS
from dltune.planners.settings.space.ranks import HOROVOD, MPI_YIELD, RANKS
from dltune.planners.settings.space.threads import THREADS
from dltune.planners.settings.space.training import BATCH_NORM, PRECISION, STEPS_PER_EXECUTION

# likeliest gain first
SPACE: tuple[Setting, ...] = (
    BATCH_NORM,
    THREADS,
    ONEDNN_PRIMITIVES,
    ONEDNN,
    ALLOCATOR,
    INPUT_PREFETCH,
    INPUT_THREADS,
    STEPS_PER_EXECUTION,
    AFFINITY,
    HOROVOD,
    MPI_YIELD,
    ONEDNN_CALLER,
    XLA,
    JIT_COMPILE,
    RANKS,
    ONEDNN_MATH,
    PRECISION,
    INPUT_ORDER,
)


def by_name(name: str) -> Setting:
    """Raises UsageError when there is no such setting; it names those that are close."""
    names = [setting.name for setting in SPACE]
    if name in names:
        return SPACE[names.index(name)]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names
    raise UsageError(f"there is no setting {name!r}", remedy=f"did you mean {' or '.join(close)}?")
