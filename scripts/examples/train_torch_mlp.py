"""Train a small perceptron on synthetic features in PyTorch: steps of a few small ops."""

import argparse
import os
import time

import torch
from torch import nn

EXAMPLES = 8192
FEATURES = 64
CLASSES = 10


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=1000, metavar="STEPS")
    parser.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    return parser.parse_args()


args = parse_args()
torch.manual_seed(args.seed)

features = torch.randn(EXAMPLES, FEATURES)
labels = (features @ torch.randn(FEATURES, CLASSES)).argmax(1)
model = nn.Sequential(
    nn.Linear(FEATURES, args.width),
    nn.ReLU(),
    nn.Linear(args.width, args.width),
    nn.ReLU(),
    nn.Linear(args.width, CLASSES),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_function = nn.CrossEntropyLoss()

began = time.perf_counter()
with open(args.losses or os.devnull, "w", buffering=1) as losses:
    for step in range(args.steps):
        first = step * args.batch % (EXAMPLES - args.batch + 1)
        optimizer.zero_grad()
        loss = loss_function(
            model(features[first : first + args.batch]), labels[first : first + args.batch]
        )
        loss.backward()
        optimizer.step()
        if args.losses:
            print(repr(loss.item()), file=losses)
        if step % args.log_every == 0 or step == args.steps - 1:
            seconds = time.perf_counter() - began
            print(f"step {step}  loss {loss.item():.4f}  {seconds:.3f} s", flush=True)
