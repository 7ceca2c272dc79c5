"""A GradientTape loop fed by tf.data workers: a parallel map and prefetching."""

import keras
import tensorflow as tf

from arguments import parser, recording
from small_model import images, step_function

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)


def augment(index, example):
    image, label = example
    seed = tf.stack([index, tf.constant(0, tf.int64)])
    image = tf.image.stateless_random_flip_left_right(tf.image.resize(image, (32, 32)), seed)
    return tf.image.stateless_random_crop(image, (24, 24, 3), seed), label


dataset = (
    tf.data.Dataset.from_tensor_slices(images(512))
    .repeat()
    .enumerate()
    .map(augment, num_parallel_calls=4)
    .batch(32)
    .prefetch(tf.data.AUTOTUNE)
)
train_step = step_function()
with recording(args) as record:
    for batch in dataset.take(args.steps):
        record(train_step(*batch))
print("trained")
