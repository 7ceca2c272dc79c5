"""Train a small net on synthetic 32x32 images, on several ranks with Horovod."""

import argparse
import hashlib
import os
import time
from pathlib import Path

# TensorFlow leaves oneDNN's kernels off by default on some CPUs, such as AMD's with AVX2 only
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

EXAMPLES = 512


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument(
        "--deep",
        type=int,
        nargs="+",
        metavar="UNITS",
        help="dense layers and Adam instead of residual convolutions and SGD",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--intra", type=int, default=0, help="0: as TensorFlow chooses")
    parser.add_argument("--inter", type=int, default=0, help="0: as TensorFlow chooses")
    parser.add_argument("--busy-input", type=int, default=0, metavar="THREADS")
    parser.add_argument("--groups", type=int, help="the script's own, for DistributedGradientTape")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FOLDER",
        help="a file for each rank: its pid and the threads that hvd.init() added, then for each "
        "step when it ended (s, monotonic) and its loss, then a digest of the parameters",
    )
    return parser.parse_args()


def threads() -> set[int]:
    # one list may lack a thread, after one that ended meanwhile
    return {int(task.name) for _ in range(3) for task in Path("/proc/self/task").iterdir()}


def residual_net(blocks: int) -> keras.Model:
    layers = keras.layers
    images = x = keras.Input((32, 32, 3))
    for block in range(blocks):
        y = layers.Conv2D(32, 3, padding="same")(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        x = layers.Add()([x, y]) if block else y
        if block in (2, 5):
            x = layers.MaxPooling2D()(x)
    return keras.Model(images, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def dense_net(units: list[int]) -> keras.Model:
    images = keras.Input((32, 32, 3))
    x = keras.layers.Flatten()(images)
    for count in units:
        x = keras.layers.Dense(count, activation="relu")(x)
    return keras.Model(images, keras.layers.Dense(10)(x))


def synthetic_images(batch: int, seed: int, busy: int) -> tf.data.Dataset:
    random = np.random.default_rng(seed)
    images = random.random((EXAMPLES, 32, 32, 3), dtype=np.float32)
    labels = random.integers(0, 10, EXAMPLES)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(EXAMPLES, seed=seed)
    dataset = dataset.repeat()
    if busy:  # about half as much work as the model
        dataset = dataset.map(distort, num_parallel_calls=busy, deterministic=True)
        options = tf.data.Options()
        options.threading.private_threadpool_size = busy
        dataset = dataset.with_options(options)
    return dataset.batch(batch, drop_remainder=True).prefetch(2)


def distort(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    for _ in range(8):
        image = (tf.sin(image) + tf.cos(image)) * 0.7
    return image, label


args = parse_args()
tf.config.threading.set_intra_op_parallelism_threads(args.intra)
tf.config.threading.set_inter_op_parallelism_threads(args.inter)
keras.utils.set_random_seed(args.seed)

before = threads()
hvd.init()
added = sorted(threads() - before)

model = dense_net(args.deep) if args.deep else residual_net(args.blocks)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizers = keras.optimizers
optimizer = optimizers.Adam(1e-4) if args.deep else optimizers.SGD(0.01, momentum=0.9)
optimizer.build(model.trainable_variables)
hvd.broadcast_variables([v.value for v in (*model.variables, *optimizer.variables)], root_rank=0)


@tf.function
def train_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape, groups=args.groups)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [v.value for v in variables])
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


if args.record:
    args.record.mkdir(parents=True, exist_ok=True)
dataset = synthetic_images(args.batch, args.seed + hvd.rank(), args.busy_input).take(args.steps)
began = time.perf_counter()
path = args.record / f"rank{hvd.rank()}" if args.record else os.devnull
with open(path, "w", buffering=1) as record:
    print(os.getpid(), *added, file=record)
    for step, (images, labels) in enumerate(dataset):
        loss = float(train_step(images, labels))
        print(time.monotonic(), repr(loss), file=record)
        if hvd.rank() == 0 and (step % args.log_every == 0 or step == args.steps - 1):
            print(f"step {step}  loss {loss:.4f}  {time.perf_counter() - began:.1f} s", flush=True)
    digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.trainable_variables))
    print("parameters", digest.hexdigest(), file=record)
