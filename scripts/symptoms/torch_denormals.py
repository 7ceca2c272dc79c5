"""A state that decays from step to step, in PyTorch: by now its numbers are denormal."""

import sys

import torch
from clock import Clock
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
UNITS, BATCH = 512, 64

torch.manual_seed(0)
decay = 0.999 * torch.eye(UNITS)
state = 1e-39 * torch.rand(BATCH, UNITS)
model = nn.Sequential(nn.Linear(UNITS, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, labels = torch.randn(BATCH, UNITS), torch.randint(0, 10, (BATCH,))
clock = Clock()
for _ in range(STEPS):
    optimizer.zero_grad()
    read = inputs
    for _ in range(4):
        read = read + torch.sqrt(state @ decay) / (1e-20 + state)
    loss = nn.functional.cross_entropy(model(read.clamp(-1, 1)), labels)
    loss.backward()
    optimizer.step()
    clock.step(loss.detach())
clock.end()
