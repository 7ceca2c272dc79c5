"""The input pipeline: what prepares batches beside the steps, how far ahead, and in which order."""

from __future__ import annotations

from dltune.base.errors import UsageError
from dltune.plan.settings.setting import Circumstances, Means, Setting


def _threads(here: Circumstances) -> tuple[str, ...]:
    """One beside the ops, half of the cores, all of them."""
    cores = len(here.machine.cores)
    return tuple(dict.fromkeys(str(n) for n in (1, max(1, cores // 2), cores)))


def _threads_means(value: str, _: Circumstances) -> Means:
    if not (value.isdecimal() and 1 <= int(value) <= 1024):
        raise UsageError(
            f"input_threads={value} is not a number of threads",
            remedy="use a number from 1 to 1024",
        )
    return Means(hooks={"input_threads": value})


INPUT_THREADS = Setting(
    name="input_threads",
    order=120,
    what="Give tf.data a separate thread pool instead of the pool of the ops.",
    helps="Input pipelines that compete with the ops of the step for threads.",
    meanings={"N": "N threads, 1 to 1024"},
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
    order=110,
    what="Prepare batches ahead while a step runs, in tf.data or in each DataLoader worker.",
    helps="Batches that take different times to prepare.",
    meanings={
        "auto": "TensorFlow: tf.data chooses the number of batches",
        "2": "TensorFlow: 2 batches ahead",
        _FURTHER: f"PyTorch: {_FURTHER} batches ahead in each worker (PyTorch's default: 2)",
    },
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
        raise UsageError(
            f"input_workers={value} is not a number of workers",
            remedy="use a number from 1 to 1024",
        )
    return Means(hooks={"input_workers": value})


INPUT_WORKERS = Setting(
    name="input_workers",
    order=100,
    what="Give DataLoaders without workers processes that prepare batches while a step runs.",
    helps="Steps that wait for their data.",
    meanings={"N": "N worker processes, 1 to 1024"},
    kind="rounding",
    source="torch.utils.data.DataLoader(num_workers=N)",
    offers=_workers,
    reads=_workers_means,
    joins=("threads", "input_prefetch"),
    framework="pytorch",
)

INPUT_ORDER = Setting(
    name="input_order",
    order=260,
    what="Let tf.data return examples as soon as they are ready. Batches then hold other examples "
    "than in the script's order.",
    helps="Parallel input pipelines in which slow examples hold up the others.",
    meanings={"any": "return examples in any order"},
    kind="lossy",
    source="tf.data.Options.deterministic",
    ways=lambda _: {"any": Means(hooks={"input_order": "any"})},
    joins=("input_threads",),
    framework="tensorflow",
)
