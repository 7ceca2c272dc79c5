"""A small convolutional classifier in PyTorch, with a DataLoader, and validation now and then."""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--losses", default=os.devnull)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--accumulate", type=int, default=1, help="batches for a step")
parser.add_argument("--validate-every", type=int, default=7)
parser.add_argument("--adversary", action="store_true", help="train a second network in turns")
parser.add_argument("--threads", default=os.devnull, help="those of half way and of the end")
parser.add_argument("--sets", type=int, help="so many threads, after half of the steps")
parser.add_argument("--wait-for", metavar="FILE", help="until it is there, after a quarter")
args = parser.parse_args()

torch.manual_seed(0)
images = torch.randn(256, 3, 24, 24)
labels = torch.randint(0, 10, (256,))
loader = DataLoader(TensorDataset(images, labels), batch_size=16, num_workers=args.workers)


def network(*more: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 12 * 12, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        *more,
    )


networks = [network()]
if args.adversary:
    networks.append(network(nn.Softplus()))
    networks[1][0].weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
optimizers = [torch.optim.SGD(one.parameters(), lr=0.01, momentum=0.9) for one in networks]
loss_of = nn.CrossEntropyLoss()


def batches():
    while True:
        yield from loader


class Twice(torch.autograd.Function):
    """One that autograd numbers without gradients, too."""

    @staticmethod
    def forward(ctx, scores):
        return 2 * scores


def validate(model: nn.Module) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            loss_of(Twice.apply(model(images[:64])), labels[:64])
    model.train()


data = batches()
with open(args.losses, "w", buffering=1) as losses:
    for step in range(args.steps):
        while step == args.steps // 4 and args.wait_for and not Path(args.wait_for).exists():
            time.sleep(0.01)
        if step == args.steps // 2 + 1 and args.sets:
            torch.set_num_threads(args.sets)
        for model, optimizer in zip(networks, optimizers, strict=True):
            optimizer.zero_grad()
            for _ in range(args.accumulate):
                inputs, targets = next(data)
                loss = loss_of(model(inputs), targets) / args.accumulate
                loss.backward()
            optimizer.step()
            print(loss.item().hex(), file=losses)
        if step % args.validate_every == args.validate_every - 1:
            validate(networks[0])
        if step in (args.steps // 2, args.steps - 1):
            with open(args.threads, "a") as threads:
                tasks = sorted(one.name for one in Path("/proc/self/task").iterdir())
                print(torch.get_num_threads(), *tasks, file=threads)
