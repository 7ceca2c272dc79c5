"""Inside the job's Python: options of tf.data, given to a dataset where it is iterated.

`Dataset.__iter__` is where Keras' fit and loops over a dataset come by (not those that AutoGraph
turns into one op within a tf.function, nor a dataset that a strategy distributes). What a script
sets itself is never changed.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _dltune_report import Hooks, Report

# a dataset that is about to be iterated -> another in its place, or why not
_Change = Callable[[Any], Any]


def input_threads(report: Report) -> Hooks:
    """Value: how many threads tf.data gets for itself."""
    number = int(report.value)
    report.did = f"set a private pool of {number} threads in {{count}} datasets"

    def change(dataset: Any) -> Any:
        import tensorflow as tf

        if dataset.options().threading.private_threadpool_size is not None:
            return "the script sets private_threadpool_size itself"
        options = tf.data.Options()
        options.threading.private_threadpool_size = number
        return dataset.with_options(options)

    yield "tensorflow", lambda tf: _on_iteration(tf, report, change)


def input_prefetch(report: Report) -> Hooks:
    """Value: how many elements are made ready ahead, or "auto" for tf.data's own choice."""
    ahead = -1 if report.value == "auto" else int(report.value)
    report.did = "{count} datasets prefetch elements during a step"

    def change(dataset: Any) -> Any:
        outermost = dataset
        while type(outermost).__name__ == "_OptionsDataset":
            (outermost,) = outermost._inputs()
        if type(outermost).__name__ == "_PrefetchDataset":
            return "it already ends with prefetch()"
        return dataset.prefetch(ahead)

    yield "tensorflow", lambda tf: _on_iteration(tf, report, change)


def input_order(report: Report) -> Hooks:
    """Value: "any". Elements may come as they are ready: a step gets other examples."""
    report.did = "{count} datasets return elements as soon as they are ready, in any order"

    def change(dataset: Any) -> Any:
        import tensorflow as tf
        from tensorflow.python.framework.config import is_op_determinism_enabled

        if dataset.options().deterministic is not None:
            return "the script sets deterministic itself"
        if is_op_determinism_enabled():
            return "the script enables TensorFlow's op determinism"
        if not any(getattr(part, "_deterministic", "") == "default" for part in _parts(dataset)):
            return "it has no parallel part with a fixed order"
        options = tf.data.Options()
        options.deterministic = False
        return dataset.with_options(options)

    yield "tensorflow", lambda tf: _on_iteration(tf, report, change)


def _parts(dataset: Any) -> Iterator[Any]:
    yield dataset
    for source in dataset._inputs():
        yield from _parts(source)


def _on_iteration(tf: ModuleType, report: Report, change: _Change) -> None:
    cls = tf.data.Dataset
    if not hasattr(cls.__iter__, "dltune_changes"):
        cls.__iter__ = _changing(cls.__iter__)
    cls.__iter__.dltune_changes.append((report, change, weakref.WeakSet()))


def _changing(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    changes: list[tuple[Report, _Change, weakref.WeakSet[Any]]] = []

    @functools.wraps(plain)
    def iterate(self: Any) -> Any:
        import tensorflow as tf

        dataset = self
        if tf.executing_eagerly() or tf.inside_function():
            for report, change, seen in changes:
                try:
                    changed = change(dataset)
                except Exception as error:
                    changed = f"{type(error).__name__}: {error}"
                if isinstance(changed, str):
                    report.left(type(self).__name__.strip("_"), changed)
                    continue
                dataset = changed
                if self not in seen:
                    seen.add(self)
                    report.acted()
        return plain(dataset)

    iterate.dltune_changes = changes  # type: ignore[attr-defined]
    return iterate
