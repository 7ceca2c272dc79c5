"""Steps of PyTorch in which each of many calls reads what the one before gave out."""

import json

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
weight = nn.Parameter(torch.randn(64))
optimizer = torch.optim.SGD([weight], lr=0.05)
losses = []
for _ in range(6):
    optimizer.zero_grad()
    found = weight * 1.5
    for _ in range(400):
        found = torch.tanh(found)
    loss = found.pow(2).sum()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with open("found.json", "w") as file:
    json.dump({"losses": losses, "weight": weight.tolist()}, file)
