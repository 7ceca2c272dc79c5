"""The GradientTape loop of a package."""

import keras
import tensorflow as tf

from arguments import parser, recording
from module_job.training import step_and_batch

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)
train_step, batch = step_and_batch()
with recording(args) as record:
    for _ in range(args.steps):
        record(train_step(*(tf.constant(part) for part in batch)))
print("trained")
