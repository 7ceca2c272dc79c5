"""A dense network in PyTorch that takes the type of its inputs, which NumPy draws as float64."""

import sys

import numpy as np
import torch
from clock import Clock
from torch_model import dense, examples, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

inputs = torch.from_numpy(np.random.default_rng(0).standard_normal((64, 512)))
_, labels = examples()
train_step = step_function(dense().to(inputs.dtype))
clock = Clock()
for _ in range(STEPS):
    clock.step(train_step(inputs, labels))
clock.end()
