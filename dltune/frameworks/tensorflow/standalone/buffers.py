"""Inputs of many ops as views of one buffer for each type, so that large ones fit in memory.

Inputs of one op lie one after the other: were they the same bytes, the op would read half as much
as it does in a job. Imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

from dltune.schemas.graph import SIZES, TensorType

# TensorFlow hands out a slice of a tensor without a copy where it begins on this many bytes
_ALIGNMENT = 64


class View(NamedTuple):
    """Elements from `start` of the buffer of a type."""

    dtype: tf.DType
    start: int
    shape: tuple[int, ...]


class Views:
    def __init__(self) -> None:
        self._kept: dict[View, None] = {}

    def place(self, tensor: TensorType, end: int) -> tuple[View, int]:
        """The input after `end` bytes of an op's inputs, and the bytes with it.

        Raises ValueError for a type that has no buffer.
        """
        if tensor.dtype not in SIZES or tensor.dtype.startswith("q"):
            raise ValueError(f"dltune cannot make a tensor of type {tensor.dtype}")
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        size = SIZES[tensor.dtype]
        view = View(tf.as_dtype(tensor.dtype), start // size, tensor.shape)
        return view, start + tensor.bytes

    def keep(self, views: Iterable[View]) -> None:
        self._kept.update(dict.fromkeys(views))

    def tensors(self) -> dict[View, tf.Tensor]:
        """All views that were kept, as tensors."""
        ends: dict[tf.DType, int] = {}
        for view in self._kept:
            end = view.start + tf.TensorShape(view.shape).num_elements()
            ends[view.dtype] = max(end, ends.get(view.dtype, 0))
        buffers = {dtype: _filled(dtype, end) for dtype, end in ends.items()}
        return {view: _view(buffers[view.dtype], view) for view in self._kept}


def _filled(dtype: tf.DType, elements: int) -> tf.Tensor:
    """Values that every op can work with: no zeros to divide by, indices that exist."""
    if dtype.is_floating:
        wide = tf.float64 if dtype == tf.float64 else tf.float32
        values = tf.random.stateless_uniform([elements], (1, 2), 0.1, 1.0, wide)
        return tf.cast(values, dtype)
    if dtype == tf.bool:
        return tf.random.stateless_uniform([elements], (1, 2)) < 0.5
    return tf.ones([elements], dtype)


def _view(buffer: tf.Tensor, view: View) -> tf.Tensor:
    count = tf.TensorShape(view.shape).num_elements()
    return tf.reshape(buffer[view.start : view.start + count], view.shape)
