"""Two ranks that train until rank 1 gets no further: `horovod_hung.py FOLDER HOW`.

HOW: `between` (its Python sleeps between two steps), `within` (in an op of a step), `stopped` (its
process is stopped), `never` (it trains on). FOLDER/rankN: its pid, then a line for each step.
"""

import os
import signal
import sys
import time
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf

STEPS = 30  # before it hangs

folder, how = Path(sys.argv[1]), sys.argv[2]
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
hvd.init()
weights = tf.Variable(tf.ones((16, 16)))


def sleep() -> None:
    while True:
        time.sleep(3600)


def wait(number: tf.Tensor) -> tf.Tensor:
    if how == "within" and hvd.rank() == 1 and number == STEPS:
        sleep()
    return number


@tf.function
def step(number: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        factor = tf.cast(tf.py_function(wait, [number], tf.int32), tf.float32)
        loss = tf.reduce_mean((weights * factor) ** 2)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
    weights.assign_sub(1e-3 * gradients[0])


folder.mkdir(parents=True, exist_ok=True)
with open(folder / f"rank{hvd.rank()}", "w", buffering=1) as record:
    print(os.getpid(), file=record)
    number = 0
    while True:
        if hvd.rank() == 1 and number == STEPS:
            if how == "between":
                sleep()
            elif how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
        step(tf.constant(number))
        print(number, file=record)
        number += 1
        time.sleep(0.01)
