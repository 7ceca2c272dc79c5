"""The input pipeline: tf.data's threads, how far it reads ahead, and its order."""

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

INPUT_PREFETCH = Setting(
    name="input_prefetch",
    what="tf.data prepares the next batches while a step runs",
    kind="exact",
    source="TensorFlow's guide to tf.data performance (prefetching)",
    ways=lambda _: {ahead: Means(hooks={"input_prefetch": ahead}) for ahead in ("auto", "2")},
    joins=("input_threads",),
    framework="tensorflow",
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
