"""Train a small ResNet (He et al., 2016) on synthetic 32x32 images, with PyTorch.

The script was written for a host with 16 cores. Its mistake is THREADS below: on fewer cores, the
threads wait for one another. It does not import dltune.
"""

import argparse
import itertools
import time

import torch
from torch import nn

THREADS = 16  # the mistake: right for a host with 16 cores, wrong for a container with 2

torch.set_num_threads(THREADS)

EXAMPLES, CLASSES = 2048, 10
# blocks of each stage, and its channels
STAGES = ((1, 16), (1, 32), (1, 64))


def normed(inputs: int, outputs: int, window: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *normed(inputs, outputs, 3, stride), nn.ReLU(), *normed(outputs, outputs, 3)
        )
        same = inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*normed(inputs, outputs, 1, stride))
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.branch(images) + self.shortcut(images))


def resnet() -> nn.Module:
    parts: list[nn.Module] = [*normed(3, 16, 3), nn.ReLU()]
    inputs = 16
    for blocks, channels in STAGES:
        for _ in range(blocks):
            parts.append(Block(inputs, channels, 2 if channels > inputs else 1))
            inputs = channels
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--seconds", type=float, default=3600.0, help="train for so long")
args = parser.parse_args()

torch.manual_seed(0)
images = torch.randn(EXAMPLES, 3, 32, 32)
labels = torch.randint(0, CLASSES, (EXAMPLES,))
model = resnet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_function = nn.CrossEntropyLoss()

steps, since = 0, time.perf_counter()
end = since + args.seconds
for step in itertools.count():
    first = step * args.batch % (EXAMPLES - args.batch + 1)
    optimizer.zero_grad()
    outputs = model(images[first : first + args.batch])
    loss = loss_function(outputs, labels[first : first + args.batch])
    loss.backward()
    optimizer.step()
    steps += 1
    elapsed = time.perf_counter() - since
    if elapsed >= 2.0:  # the speed, every two seconds
        samples = steps * args.batch / elapsed
        print(f"step {step + 1}  loss {loss.item():.4f}  {samples:.1f} samples/s", flush=True)
        steps, since = 0, time.perf_counter()
        if since > end:
            break
