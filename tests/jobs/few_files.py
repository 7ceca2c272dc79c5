"""Training in a process that may open no more files after its first steps."""

import resource
from pathlib import Path

import tensorflow as tf

from arguments import parser, recording

args = parser(__doc__).parse_args()
weights = tf.Variable(tf.zeros((256, 64)))
images = tf.random.stateless_normal((64, 256), (1, 2))


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(images, weights) - 1.0))
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


with recording(args) as record:
    for number in range(args.steps):
        record(step())
        if number == 3:
            open_now = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 2, hard))
        if number % 1000 == 0:
            print(f"step {number}", flush=True)
