"""Gradient descent in NumPy: Python, but no TensorFlow."""

import numpy as np

from arguments import parser, recording

args = parser(__doc__, steps=200).parse_args()
random = np.random.default_rng(0)
inputs, targets = random.random((256, 128)), random.random((256, 1))
weights = np.zeros((128, 1))
with recording(args) as record:
    for _ in range(args.steps):
        errors = inputs @ weights - targets
        weights -= 0.01 * inputs.T @ errors / len(inputs)
        record(np.mean(errors**2))
print("trained")
