"""Train DenseNet-121 (Huang et al., 2017) on synthetic images."""

import argparse
import os
import time

import torch
from torch import nn

EXAMPLES = 512
CLASSES = 10
BLOCKS = (6, 12, 24, 16)
GROWTH = 32


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="height and width of an image")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=1, metavar="STEPS")
    parser.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    return parser.parse_args()


def normed(inputs: int, outputs: int, window: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, window, padding=window // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), convolution]


class Layer(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(*normed(inputs, 4 * GROWTH, 1), *normed(4 * GROWTH, GROWTH, 3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat((images, self.branch(images)), 1)


def densenet121() -> nn.Module:
    channels = 2 * GROWTH
    parts: list[nn.Module] = [
        nn.Conv2d(3, channels, 7, 2, 3, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    for block, layers in enumerate(BLOCKS):
        if block:
            parts += [*normed(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(layers):
            parts.append(Layer(channels))
            channels += GROWTH
    parts += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(channels, CLASSES))


args = parse_args()
torch.manual_seed(args.seed)

images = torch.randn(EXAMPLES, 3, args.size, args.size)
labels = torch.randint(0, CLASSES, (EXAMPLES,))
model = densenet121()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loss_function = nn.CrossEntropyLoss()

began = time.perf_counter()
with open(args.losses or os.devnull, "w", buffering=1) as losses:
    for step in range(args.steps):
        chosen = torch.randint(0, EXAMPLES, (args.batch,))
        optimizer.zero_grad()
        loss = loss_function(model(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        print(repr(loss.item()), file=losses)
        if step % args.log_every == 0 or step == args.steps - 1:
            seconds = time.perf_counter() - began
            print(f"step {step}  loss {loss.item():.4f}  {seconds:.3f} s", flush=True)
