"""Four workers that train a copy each: every one has a pool with a thread for each core."""

import sys

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
WORKERS = 4
THREADS = 0  # of each worker; 0: as many as there are cores


def work(done):
    import keras
    import tensorflow as tf
    from model import batches, dense, step_function

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    keras.utils.set_random_seed(0)
    train_step = step_function(dense(units=256))
    for inputs, labels in batches(64, 512).take(STEPS):
        done.put(float(train_step(inputs, labels)))


if __name__ == "__main__":
    from workers import train_together

    train_together(work, WORKERS, STEPS)
