"""A regression in PyTorch whose script updates the parameters itself."""

import sys

import torch

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000

torch.manual_seed(0)
inputs = torch.randn(512, 64)
targets = inputs @ torch.randn(64, 1)
weights = [torch.randn(shape).mul_(0.1).requires_grad_() for shape in ((64, 128), (128, 1))]
for _ in range(STEPS):
    hidden = torch.relu(inputs @ weights[0])
    loss = (hidden @ weights[1] - targets).pow(2).mean()
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(gradient, alpha=0.01)
print(loss.item().hex())
