"""The input pipeline: what prepares batches beside the steps, how far ahead, and in which order."""

from __future__ import annotations

from dltune.errors import UsageError
from dltune.planners.settings.setting import Circumstances, Means, Setting


def _threads(here: Circumstances) -> tuple[str, ...]:
    """One beside the ops, half of the cores, all of them."""
    cores = len(here.machine.cores)
    return tuple(dict.fromkeys(str(n) for n in (1, max(1, cores // 2), cores)))


def _threads_means(value: str, _: Circumstances) -> Means:
    if not (value.isdecimal() and 1 <= int(value) <= 1024):
        raise UsageError(f"input_threads={value}: not a number of threads")
    return Means(hooks={"input_threads": value})


INPUT_THREADS = Setting(
    name="input_threads",
    what="a thread pool of its own for tf.data, which otherwise shares that of the ops",
    kind="exact",
    source="tf.data.Options.threading.private_threadpool_size",
    offers=_threads,
    reads=_threads_means,
    joins=("threads",),
    framework="tensorflow",
)

_FURTHER = "8"  # batches that each of PyTorch's workers prepares ahead, which does 2 by itself

INPUT_PREFETCH = Setting(
    name="input_prefetch",
    what="tf.data, or each worker of PyTorch's DataLoader, prepares so many batches while a step "
    "runs",
    kind="exact",
    source="TensorFlow's guide to tf.data performance (prefetching); "
    "torch.utils.data.DataLoader(prefetch_factor=N)",
    ways=lambda _: {
        ahead: Means(hooks={"input_prefetch": ahead}) for ahead in ("auto", "2", _FURTHER)
    },
    joins=("input_threads", "input_workers"),
    framework_of=lambda value: "pytorch" if value == _FURTHER else "tensorflow",
)


def _workers(here: Circumstances) -> tuple[str, ...]:
    """One beside the ops, one for each core."""
    return tuple(dict.fromkeys(("1", str(len(here.machine.cores)))))


def _workers_means(value: str, _: Circumstances) -> Means:
    if not (value.isdecimal() and 1 <= int(value) <= 1024):
        raise UsageError(f"input_workers={value}: not a number of workers")
    return Means(hooks={"input_workers": value})


INPUT_WORKERS = Setting(
    name="input_workers",
    what="processes that prepare batches while a step runs, for PyTorch's DataLoaders that have "
    "none",
    kind="rounding",
    source="torch.utils.data.DataLoader(num_workers=N)",
    offers=_workers,
    reads=_workers_means,
    joins=("threads", "input_prefetch"),
    framework="pytorch",
)

INPUT_ORDER = Setting(
    name="input_order",
    what="tf.data gives examples as they are ready: batches hold others than in the script's order",
    kind="lossy",
    source="tf.data.Options.deterministic",
    ways=lambda _: {"any": Means(hooks={"input_order": "any"})},
    joins=("input_threads",),
    framework="tensorflow",
)
