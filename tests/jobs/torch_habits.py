"""What PyTorch scripts do around a model: each is right only if weights and results are whole."""

from __future__ import annotations

import collections
import copy
import io
import json
import sys

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    """Computes its loss itself, of which it leaves samples out, and counts what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.last = nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        h = torch.relu(self.first(x))
        if self.training:
            self.seen.mul_(0.9).add_(0.1 * h.detach().mean((0, 1)))
        scores = self.last(self.block(h).mean(1)) * self.scale
        found = {"scores": scores}
        if y is not None:
            found["loss"] = nn.functional.cross_entropy(scores, y, ignore_index=-100)
        return found


class Holder:
    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight


def main() -> None:
    model = Net()
    slotted, latest = Slotted(model.last.bias), collections.deque([model.first.bias])
    average = copy.deepcopy(model).eval()
    held, weight = Holder(model.last.weight), model.first.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(16, 5, 8)
    y = torch.randint(0, 4, (16,))
    y[3:9] = -100
    model.eval()
    with torch.inference_mode():  # before the first step, as some look whether all is well
        model(x=x)
    losses, told = [], []
    for _ in range(4):
        model.train()
        found = model(x, y=y)
        loss = found["loss"] + 0.01 * found["scores"].pow(2).mean()
        loss = loss + 1e-2 * weight.pow(2).sum() + 1e-2 * held.weight.pow(2).sum()
        loss = loss + 1e-2 * slotted.weight.pow(2).sum() + 1e-2 * latest[0].pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        told.append(f"{nn.utils.clip_grad_norm_(model.parameters(), 0.5):.4f}")
        optimizer.step()
        for one in model.parameters():
            one.data = one.data.clamp(-0.3, 0.3)
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.mul_(0.5).add_(0.5 * new)
            own = average.state_dict().values()
            for old, new in zip(own, model.state_dict().values(), strict=True):
                old.copy_(0.9 * old + 0.1 * new)
            average(x)
        losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            losses.append(float(nn.functional.cross_entropy(model(x)["scores"], y)))
    again = copy.deepcopy(model)
    memory = io.BytesIO()
    torch.save(dict(model.named_parameters()), memory)
    memory.seek(0)
    saved = torch.load(memory)
    found = {
        "losses": losses,
        "told": [float(one) for one in told],
        "seen": model.seen.tolist(),
        "average": [float(one.sum()) for one in average.parameters()],
        "saved": [float(one.sum()) for one in saved.values()],
        "again": again(x)["scores"].sum().item(),
        "whole": sum(one.numel() for one in saved.values()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
