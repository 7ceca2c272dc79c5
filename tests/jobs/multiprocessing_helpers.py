"""Two helper processes: a forked one that makes batches, a spawned one that imports TensorFlow and
scores. Each ends when its pipe closes, however the job ends."""

import multiprocessing

import numpy as np

from arguments import parser, recording

BATCH = 32
SCORE_EVERY = 10


def make_batches(sender, receiver):
    receiver.close()
    random = np.random.default_rng(0)
    try:
        while True:
            images = random.random((BATCH, 24, 24, 3), dtype=np.float32)
            sender.send((images, random.integers(0, 10, BATCH)))
    except (BrokenPipeError, KeyboardInterrupt):
        return


def score(connection):
    import tensorflow as tf

    @tf.function
    def mean_activation(images):
        return tf.reduce_mean(tf.nn.conv2d(images, tf.ones((3, 3, 3, 8)), 1, "SAME"))

    try:
        while True:
            connection.send(float(mean_activation(connection.recv())))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def main():
    args = parser(__doc__).parse_args()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # forked before TensorFlow is there, as it must be
    maker = multiprocessing.get_context("fork").Process(
        target=make_batches, args=(sender, receiver), daemon=True
    )
    maker.start()
    sender.close()
    scores, remote = multiprocessing.Pipe()
    scorer = multiprocessing.get_context("spawn").Process(target=score, args=(remote,), daemon=True)
    scorer.start()
    remote.close()

    import keras

    from small_model import step_function

    keras.utils.set_random_seed(0)
    train_step = step_function()
    with recording(args) as record:
        for step in range(args.steps):
            images, labels = receiver.recv()
            record(train_step(images, labels))
            if step % SCORE_EVERY == 0:
                scores.send(images)
                scores.recv()
    receiver.close()
    scores.close()
    maker.join()
    scorer.join()
    print("trained")


if __name__ == "__main__":
    main()
