"""A regression in PyTorch whose script updates the parameters itself, or (--hooked) has optimizers
that step with each gradient, within the backward pass."""

import sys

import torch

HOOKED = "--hooked" in sys.argv
STEPS = int(sys.argv[1]) if sys.argv[1:] and not HOOKED else 1_000_000

torch.manual_seed(0)
inputs = torch.randn(512, 64)
targets = inputs @ torch.randn(64, 1)
weights = [torch.randn(shape).mul_(0.1).requires_grad_() for shape in ((64, 128), (128, 1))]
if HOOKED:
    optimizers = {weight: torch.optim.SGD([weight], lr=0.01) for weight in weights}

    def step(weight):
        optimizers[weight].step()
        weight.grad = None

    for weight in weights:
        weight.register_post_accumulate_grad_hook(step)
for _ in range(STEPS):
    hidden = torch.relu(inputs @ weights[0])
    loss = (hidden @ weights[1] - targets).pow(2).mean()
    if HOOKED:
        loss.backward()
        continue
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(gradient, alpha=0.01)
print(loss.item().hex())
