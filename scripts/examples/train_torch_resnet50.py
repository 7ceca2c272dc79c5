"""Train ResNet-50 (He et al., 2016; with the stride on the 3x3 window) on synthetic images."""

import argparse
import os
import time

import torch
from torch import nn

EXAMPLES = 512
CLASSES = 10
# blocks of each stage, and its inner channels
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
EXPANSION = 4


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="height and width of an image")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=1, metavar="STEPS")
    parser.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    return parser.parse_args()


def normed(inputs: int, outputs: int, window: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * inner
        self.branch = nn.Sequential(
            *normed(inputs, inner, 1),
            nn.ReLU(inplace=True),
            *normed(inner, inner, 3, stride),
            nn.ReLU(inplace=True),
            *normed(inner, outputs, 1),
        )
        alike = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity() if alike else nn.Sequential(*normed(inputs, outputs, 1, stride))
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.branch(images) + self.shortcut(images))


def resnet50() -> nn.Module:
    parts: list[nn.Module] = [*normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (blocks, inner) in enumerate(STAGES):
        for block in range(blocks):
            parts.append(Block(channels, inner, 2 if stage and block == 0 else 1))
            channels = EXPANSION * inner
    return nn.Sequential(
        *parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)
    )


args = parse_args()
torch.manual_seed(args.seed)

images = torch.randn(EXAMPLES, 3, args.size, args.size)
labels = torch.randint(0, CLASSES, (EXAMPLES,))
model = resnet50()
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
