"""A GradientTape loop in a tf.function."""

import keras

from arguments import parser, recording
from small_model import batches, step_function

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)
train_step = step_function()
with recording(args) as record:
    for batch in batches(32).take(args.steps):
        record(train_step(*batch))
print("trained")
