"""Trains, then dies: of an exception, with `--signal` of a segmentation fault."""

import os
import signal

import keras
import tensorflow as tf

from arguments import parser, recording
from small_model import images, step_function

arguments = parser(__doc__, steps=50)
arguments.add_argument("--signal", action="store_true")
args = arguments.parse_args()
keras.utils.set_random_seed(0)
train_step = step_function()
batch = [tf.constant(part) for part in images(32)]
with recording(args) as record:
    for _ in range(args.steps):
        record(train_step(*batch))
if args.signal:
    os.kill(os.getpid(), signal.SIGSEGV)
raise RuntimeError("died, as asked")
