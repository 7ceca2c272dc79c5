"""Records of an LMDB file for TensorFlow and Keras. Used by training jobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from dltune.systems.lmdb.reader.options import Order, Sequential, Share, Shuffled
from dltune.systems.lmdb.reader.reader import Reader, Records

# mallopt's names for them, of malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def dataset(path: Path | str, *, batch: int, **arguments: Any) -> tf.data.Dataset:
    """Batches of (keys, values), two string tensors of shape [batch], without end.

        data = dataset("train.lmdb", batch=32, shuffle=1).map(parse).prefetch(2)
        model.fit(data, steps_per_epoch=1000)

    `arguments` are those of `dltune.systems.lmdb.Reader`. Each iterator over the dataset opens a
    reader of its own and begins at its first iteration. Raises what `Reader` raises; what goes
    wrong while reading comes as an error of TensorFlow's that says so. The pipeline has a private
    thread pool, with a thread for each core unless its options say otherwise.
    """
    Reader(path, batch=batch, **arguments).close()  # wrong arguments are reported here

    def batches() -> Any:
        _let_memory_stay()
        with Reader(path, batch=batch, **arguments) as reader:
            for records in reader:
                keys, values = zip(*records, strict=True)
                yield list(keys), list(values)

    strings = tf.TensorSpec((batch,), tf.string)
    made = tf.data.Dataset.from_generator(batches, output_signature=(strings, strings))
    # a generator that waits for storage holds a thread of the pool that also runs the step's ops:
    # with few inter-op threads the step would wait with it
    apart = tf.data.Options()
    apart.threading.private_threadpool_size = len(os.sched_getaffinity(0))
    iterations = arguments.get("iterations")
    length = tf.data.INFINITE_CARDINALITY if iterations is None else iterations
    return made.with_options(apart).apply(tf.data.experimental.assert_cardinality(length))


def _let_memory_stay() -> None:
    """Undo what TensorFlow's generator op does to glibc's malloc when it first runs.

    It sets M_TRIM_THRESHOLD to 128 KiB, and with that glibc stops adapting its mmap threshold too:
    each larger buffer of a step is mapped, faulted in and unmapped again. Both get the values up to
    which glibc adapts them by itself (mallopt(3)).
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have none, and adapt nothing
        mallopt(_MMAP_THRESHOLD, 32 << 20)
        mallopt(_TRIM_THRESHOLD, 64 << 20)


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """Decoded batches of a rank for Keras' `fit`, an epoch at a time.

        model.fit(Batches(Records("train.lmdb"), decode, batch=32, shuffle=1), epochs=90)

    `decode(values)` makes what `fit` takes, such as (x, y), of the values of a batch, bytes each.
    Batches and their order are those of `Reader`; an epoch's are as many as it takes to read each
    record at least once, in whole runs. `workers`, `use_multiprocessing`, `max_queue_size`: those
    of Keras.
    """

    def __init__(
        self,
        records: Records,
        decode: Callable[[list[bytes]], Any],
        *,
        batch: int,
        shuffle: int | None = None,
        run: int | None = None,
        rank: int | None = None,
        size: int | None = None,
        **options: Any,
    ) -> None:
        """`rank` of `size`: instead of the launcher's. Raises UsageError as `Reader`."""
        super().__init__(**options)
        self._records = records
        self._decode = decode
        self._share = Share.of(rank, size, batch, run)
        self._order: Order = Sequential(len(records))
        if shuffle is not None:
            self._order = Shuffled(len(records), shuffle)
        self._epoch = 0

    def __len__(self) -> int:
        return self._share.per_epoch(len(self._records))

    def __getitem__(self, index: int) -> Any:
        numbers = self._share.numbers(self._epoch * len(self) + index, 1)[0]
        positions = self._order.positions(numbers)
        return self._decode([record.value for record in self._records.read(positions.tolist())])

    def on_epoch_end(self) -> None:
        self._epoch += 1
