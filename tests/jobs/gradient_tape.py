"""A GradientTape loop in a tf.function."""

import keras
import tensorflow as tf

from arguments import parser, recording
from small_model import images, step_function

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)
train_step = step_function()
dataset = tf.data.Dataset.from_tensor_slices(images(512)).repeat().batch(32)
with recording(args) as record:
    for batch in dataset.take(args.steps):
        record(train_step(*batch))
print("trained")
