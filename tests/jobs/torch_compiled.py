"""A perceptron in PyTorch, compiled."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, targets = torch.randn(256, 64), torch.randint(0, 10, (256,))
while True:
    optimizer.zero_grad()
    nn.functional.cross_entropy(compiled(inputs), targets).backward()
    optimizer.step()
