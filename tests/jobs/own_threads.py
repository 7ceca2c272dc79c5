"""A GradientTape loop that sets TensorFlow's threads itself."""

import keras
import tensorflow as tf

from arguments import parser, recording
from small_model import images, step_function

arguments = parser(__doc__)
arguments.add_argument("--intra", type=int, default=1)
arguments.add_argument("--inter", type=int, default=1)
args = arguments.parse_args()
tf.config.threading.set_intra_op_parallelism_threads(args.intra)
tf.config.threading.set_inter_op_parallelism_threads(args.inter)

keras.utils.set_random_seed(0)
train_step = step_function()
batch = [tf.constant(part) for part in images(32)]
with recording(args) as record:
    for _ in range(args.steps):
        record(train_step(*batch))
print("trained")
