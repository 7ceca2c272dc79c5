"""Train a classifier of sensor data, with PyTorch.

The script is correct, and slow for four common reasons. `dltune diagnose` names them; try to find
them before you run it.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, SENSORS, WINDOW, CLASSES = 50_000, 8, 64, 5

torch.set_num_threads(16)


class Windows(Dataset):
    """Windows of a recording. Each row of a window is scaled to the length 1."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.rows = generator.standard_normal((ROWS, SENSORS)).cumsum(axis=0)
        self.rows /= self.rows.std(axis=0)
        self.labels = generator.integers(0, CLASSES, ROWS)

    def __len__(self) -> int:
        return ROWS - WINDOW

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        window = self.rows[index : index + WINDOW].copy()
        for row in window:
            row /= max(np.linalg.norm(row), 1e-3)
        return torch.from_numpy(window.ravel()), int(self.labels[index])


def network(width: int, depth: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Linear(WINDOW * SENSORS, width), nn.ReLU()]
    for _ in range(depth):
        parts += [nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, CLASSES)).double()


parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--seconds", type=float, default=3600.0, help="train for so long")
args = parser.parse_args()

torch.manual_seed(0)
loader = DataLoader(Windows(), args.batch, shuffle=True, drop_last=True)
model = network(width=512, depth=6)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_function = nn.CrossEntropyLoss()

steps, since = 0, time.perf_counter()
end = since + args.seconds
while since < end:
    for windows, labels in loader:
        optimizer.zero_grad()
        loss = loss_function(model(windows), labels)
        loss.backward()
        optimizer.step()
        steps += 1
        elapsed = time.perf_counter() - since
        if elapsed >= 2.0:  # the speed, every two seconds
            samples = steps * args.batch / elapsed
            print(f"loss {loss.item():.4f}  {samples:.1f} samples/s", flush=True)
            steps, since = 0, time.perf_counter()
            if since > end:
                break
