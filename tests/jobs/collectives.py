"""Collectives of the newer kind, which are handed their group as tensors: one that is fixed in the
graph, and one that is computed."""

import tensorflow as tf


@tf.function
def step(x: tf.Tensor, instance: tf.Tensor) -> tf.Tensor:
    def reduced(value: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
        return tf.raw_ops.CollectiveReduceV2(
            input=value,
            group_size=1,
            group_key=7,
            instance_key=number,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
        )

    return tf.reduce_sum(reduced(x @ x, 9) + reduced(x, instance))


for _ in range(3):
    assert step(tf.ones((8, 8)), tf.constant(11)).numpy() == 8 * 8 * 9
