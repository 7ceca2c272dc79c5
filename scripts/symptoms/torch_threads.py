"""A dense network in PyTorch; its threads are set by the environment, for a larger machine."""

import sys

from clock import Clock
from torch_model import dense, examples, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000

train_step = step_function(dense())
batch = examples()
clock = Clock()
for _ in range(STEPS):
    clock.step(train_step(*batch))
clock.end()
