"""The space of settings: a file for each group of entries."""

from __future__ import annotations

import difflib

from dltune.errors import UsageError
from dltune.planners.settings.setting import Setting
from dltune.planners.settings.space import kernels, openmp, pipeline, ranks, threads, training
from dltune.planners.settings.space.allocator import ALLOCATOR

# likeliest gain first
SPACE: tuple[Setting, ...] = (
    training.BATCH_NORM,
    kernels.FUSED_OPTIMIZER,
    kernels.CHANNELS_LAST,
    threads.THREADS,
    kernels.ONEDNN_PRIMITIVES,
    kernels.ONEDNN,
    ALLOCATOR,
    openmp.OPENMP,
    openmp.OPENMP_WAIT,
    pipeline.INPUT_WORKERS,
    pipeline.INPUT_PREFETCH,
    pipeline.INPUT_THREADS,
    training.STEPS_PER_EXECUTION,
    threads.AFFINITY,
    ranks.HOROVOD,
    ranks.MPI_YIELD,
    ranks.DDP_BUCKET,
    kernels.ONEDNN_CALLER,
    kernels.XLA,
    kernels.JIT_COMPILE,
    kernels.DENORMALS,
    ranks.RANKS,
    kernels.ONEDNN_MATH,
    kernels.FLOAT32_PRECISION,
    training.PRECISION,
    pipeline.INPUT_ORDER,
)


def by_name(name: str) -> Setting:
    """Raises UsageError when there is no such setting; it names those that are close."""
    names = [setting.name for setting in SPACE]
    if name in names:
        return SPACE[names.index(name)]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names
    raise UsageError(f"there is no setting {name!r}", remedy=f"use {' or '.join(close)}")
