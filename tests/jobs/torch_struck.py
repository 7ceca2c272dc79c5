"""A PyTorch job that forks and profiles itself now and then, until something befalls it."""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--until", type=Path, help="a file: it dies at its next step then")
parser.add_argument("--signal", action="store_true", help="it crashes instead")
parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps")
parser.add_argument("--later", type=float, help="those after the first 20, which dltune needs")
parser.add_argument("--fork", action="store_true", help="at each tenth step")
parser.add_argument("--profile", action="store_true", help="each tenth step, by torch.profiler")
options = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 22 * 22, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(16, 3, 24, 24), torch.randint(0, 10, (16,))


def train():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


step = 0
while True:
    step += 1
    time.sleep(options.pause if options.later is None or step < 20 else options.later)
    if options.until and options.until.exists():
        if options.signal:
            os.kill(os.getpid(), signal.SIGSEGV)
        raise RuntimeError("no more examples")
    if options.fork and step % 10 == 0:
        if (child := os.fork()) == 0:
            # a child computes; what it was told of threads is not its own
            os._exit(0 if torch.ones(3).add(1).sum() == 6 else 1)
        assert os.waitpid(child, 0)[1] == 0
    if options.profile and step % 10 == 0:
        with torch.profiler.profile() as profiler:
            train()
        assert any(event.key == "aten::conv2d" for event in profiler.key_averages())
    else:
        train()
