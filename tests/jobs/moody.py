"""A tiny step and a pause after it; what the environment says makes it fast, end, or hang.

Kept oneDNN primitives make it fast. XLA's auto-clustering ends it, oneDNN on the
caller's thread lets it hang before its first step.
"""

import os
import sys
import time

import tensorflow as tf

from arguments import parser

args = parser(__doc__).parse_args()

if "tf_xla_auto_jit" in os.environ.get("TF_XLA_FLAGS", ""):
    sys.exit("this job cannot stand XLA")
if os.environ.get("TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD") == "true":
    time.sleep(3600)
pause = 0.02 if os.environ.get("TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE") == "false" else 0.2

weights = tf.Variable(tf.zeros((16, 16)))


@tf.function
def train_step(inputs: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((inputs @ weights - 1.0) ** 2)
    weights.assign_sub(1e-4 * tape.gradient(loss, weights))
    return loss


inputs = tf.ones((8, 16))
for _ in range(args.steps):
    train_step(inputs)
    time.sleep(pause)
