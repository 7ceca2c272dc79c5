"""A GradientTape loop whose step XLA compiles."""

import keras
import tensorflow as tf

from arguments import parser, recording
from small_model import images, step_function

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)
train_step = step_function(jit_compile=True)
batch = [tf.constant(part) for part in images(32)]
with recording(args) as record:
    for _ in range(args.steps):
        record(train_step(*batch))
print("trained")
