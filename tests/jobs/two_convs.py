"""A step of exactly two large convolutions and two large matrix products, all of other shapes.

Those in float32 are oneDNN's kernels, those in float64 are Eigen's: oneDNN has none. No op waits
for another.
"""

import os

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import tensorflow as tf

from arguments import parser, recording

args = parser(__doc__).parse_args()


def uniform(shape, dtype):
    return tf.random.stateless_uniform(shape, (0, len(shape)), -1, 1, dtype)


@tf.function
def step(images32, filters32, images64, filters64, left32, right32, left64, right64):
    return (
        tf.nn.conv2d(images32, filters32, 1, "SAME"),
        tf.nn.conv2d(images64, filters64, 1, "SAME"),
        tf.matmul(left32, right32),
        tf.matmul(left64, right64),
    )


inputs = (
    uniform((8, 28, 28, 128), tf.float32),
    uniform((3, 3, 128, 128), tf.float32),
    uniform((4, 28, 28, 64), tf.float64),
    uniform((3, 3, 64, 48), tf.float64),
    uniform((1024, 768), tf.float32),
    uniform((768, 1280), tf.float32),
    uniform((640, 512), tf.float64),
    uniform((512, 384), tf.float64),
)
with recording(args) as record:
    for number in range(args.steps):
        results = step(*inputs)
        loss = sum(float(result.numpy().mean()) for result in results)
        record(loss)
        if number % 100 == 0:
            print(f"step {number}  {loss:.6f}", flush=True)
