"""A model of DistributedDataParallel's, as torchrun starts it, or alone."""

from __future__ import annotations

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--unused", action="store_true", help="look for unused parameters")
parser.add_argument("--losses", help="a file for each rank: this name and the rank's number")
parser.add_argument("--bucket", type=int, help="MiB of gradients that travel together")
parser.add_argument("--told", default=os.devnull, help="what they are, in bytes")
args = parser.parse_args()

torch.manual_seed(0)
layers = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())]
model: nn.Module = nn.Sequential(*layers, nn.Linear(256, 1))
if "RANK" in os.environ:
    distributed.init_process_group("gloo")
    own = {"bucket_cap_mb": args.bucket} if args.bucket else {}
    model = DistributedDataParallel(model, find_unused_parameters=args.unused, **own)
    with open(args.told, "w") as told:
        print(model.bucket_bytes_cap, file=told)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
torch.manual_seed(int(os.environ.get("RANK", "0")))
with open(args.losses + os.environ.get("RANK", "") if args.losses else os.devnull, "w") as losses:
    for _ in range(args.steps):
        loss = (model(torch.randn(64, 256)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()), file=losses)
