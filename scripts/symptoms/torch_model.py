"""The network that several of the PyTorch jobs train, and a step."""

import torch
from torch import nn


def dense(units=512, depth=4, outputs=10):
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(units, units), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(units, outputs))


def examples(batch=64, units=512):
    """Random inputs and labels of ten classes."""
    return torch.randn(batch, units), torch.randint(0, 10, (batch,))


def step_function(model):
    """(inputs, labels) -> loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train_step(inputs, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step
