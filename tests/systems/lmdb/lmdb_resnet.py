"""A small residual network that reads its examples from LMDB, in one of several ways."""

import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

sys.path.append(str(Path(__file__).parents[2] / "jobs"))

from arguments import parser, recording
from small_model import step_function

BATCH = 16
IMAGE = (24, 24, 3)
BYTES = 24 * 24 * 3

arguments = parser(__doc__)
arguments.add_argument("--database", required=True)
arguments.add_argument("--by", choices=("py-lmdb", "hints", "dataset", "keras"), required=True)
arguments.add_argument("--shuffle", type=int)
arguments.add_argument("--times", metavar="FILE", help="when each step ended, one a line")
args = arguments.parse_args()
keras.utils.set_random_seed(0)


def residual(inputs, filters, strides):
    outputs = layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(inputs)
    outputs = layers.ReLU()(layers.BatchNormalization()(outputs))
    outputs = layers.Conv2D(filters, 3, padding="same", use_bias=False)(outputs)
    outputs = layers.BatchNormalization()(outputs)
    if strides > 1:
        inputs = layers.Conv2D(filters, 1, strides, use_bias=False)(inputs)
    return layers.ReLU()(layers.Add()([inputs, outputs]))


def resnet():
    inputs = layers.Input(IMAGE)
    outputs = layers.Conv2D(16, 3, padding="same")(inputs)
    for filters, strides in ((16, 1), (32, 2), (64, 2)):
        outputs = residual(outputs, filters, strides)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(outputs)))


def positions(count):
    """The order that Reader documents."""
    if args.shuffle is None:
        while True:
            yield from range(count)
    for epoch in range(1000):
        yield from np.random.default_rng((args.shuffle, epoch)).permutation(count).tolist()


def values():
    """Batches of values, read by py-lmdb."""
    import lmdb

    with lmdb.open(args.database, readonly=True, lock=False) as env, env.begin() as txn:
        if args.by == "hints":
            from dltune.systems.lmdb import ReadAhead

            keys = ReadAhead(args.database, positions(env.stat()["entries"])).keys()
        else:
            keys = (b"%06d" % at for at in positions(env.stat()["entries"]))
        while True:
            yield [txn.get(next(keys)) for _ in range(BATCH)]


def decode(batch):
    """Images and labels of values: a byte of label, then the image's bytes."""
    data = np.frombuffer(b"".join(batch), np.uint8).reshape(BATCH, 1 + BYTES)
    return data[:, 1:].reshape(BATCH, *IMAGE).astype(np.float32) / 255, data[:, 0].astype(np.int64)


def decode_strings(_, batch):
    data = tf.io.decode_raw(batch, tf.uint8)
    images = tf.reshape(data[:, 1:], (BATCH, *IMAGE))
    return tf.cast(images, tf.float32) / 255, tf.cast(data[:, 0], tf.int64)


def examples():
    if args.by == "dataset":
        from dltune.systems.lmdb.reader.tensorflow import dataset

        data = dataset(args.database, batch=BATCH, shuffle=args.shuffle)
        yield from data.map(decode_strings).prefetch(2)
    elif args.by == "keras":
        from dltune.systems.lmdb import Records
        from dltune.systems.lmdb.reader.tensorflow import Batches

        batches = Batches(Records(args.database), decode, batch=BATCH, shuffle=args.shuffle)
        while True:
            yield from (batches[at] for at in range(len(batches)))
            batches.on_epoch_end()
    else:
        yield from map(decode, values())


model = resnet()
train_step = step_function(model, keras.optimizers.SGD(0.05, momentum=0.9))


ends = []
with recording(args) as record:
    for _, (inputs, labels) in zip(range(args.steps), examples(), strict=False):
        record(train_step(inputs, labels))
        ends.append(time.perf_counter())
if args.times:
    Path(args.times).write_text("".join(f"{end}\n" for end in ends))
