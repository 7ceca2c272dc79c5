"""A policy network of 4-120-84-2 units and a critic in PyTorch, updated from 32 environments."""

import sys

import torch
from clock import Clock
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000

torch.manual_seed(0)
# as on the machine of the complaint: by itself PyTorch has no more than there are cores
torch.set_num_threads(48)


def tower(outputs):
    return nn.Sequential(
        nn.Linear(4, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, outputs)
    )


policy, critic = tower(2), tower(1)
optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-3)
clock = Clock()
for _ in range(STEPS):
    states, actions, returns = torch.randn(32, 4), torch.randint(0, 2, (32,)), torch.randn(32)
    optimizer.zero_grad()
    value = critic(states).squeeze(1)
    chosen = nn.functional.cross_entropy(policy(states), actions, reduction="none")
    loss = (chosen * (returns - value.detach())).mean() + (returns - value).pow(2).mean()
    loss.backward()
    optimizer.step()
    clock.step(loss.detach())
clock.end()
