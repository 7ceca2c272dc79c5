"""A PyTorch model, trained: torch_fit.py dense|conv|attention FOLDER [what else it does]..."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

kind, folder, asked = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
random = np.random.default_rng(0)
if "unseeded" not in asked:
    torch.manual_seed(0)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.cells = nn.LSTM(8, 8, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(8, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        h = self.embedding(words) + torch.linspace(0, 1, words.shape[1])[:, None]
        many, length, _ = h.shape
        q, k, v = self.qkv(h).view(many, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = self.norm(h + self.dropout(self.out(mixed.transpose(1, 2).reshape(many, length, 8))))
        if self.training:
            h = h + 0.1 * torch.randn_like(h)
        h, (ended, _) = self.cells(h)
        return self.last(h.mean(1) + ended[-1])


class Net(nn.Module):
    """Layers by the names that Keras gives them."""

    def __init__(self, conv: bool) -> None:
        super().__init__()
        self.conv = conv
        if conv:
            self.conv2d = nn.Conv2d(3, 4, 3, padding=1)
            self.batch_normalization = nn.BatchNorm2d(4, eps=1e-3, momentum=0.01)
            self.flatten = nn.Flatten()
        self.dense = nn.Linear(256 if conv else 12, 8 if conv else 16)
        self.dense_1 = nn.Linear(8 if conv else 16, 4)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        if self.conv:
            h = self.batch_normalization(torch.relu(self.conv2d(h.permute(0, 3, 1, 2))))
            h = self.flatten(h.permute(0, 2, 3, 1))
        return self.dense_1(torch.relu(self.dense(h)))


rows = 21  # the last batch, of five, cannot be divided
shape = {"dense": (12,), "conv": (8, 8, 3), "attention": (6,)}[kind]
if kind == "attention":
    model: nn.Module = Attending()
    x = torch.tensor(random.integers(0, 40, (rows, *shape)))
else:
    model = Net(kind == "conv")
    x = torch.tensor(random.normal(size=(rows, *shape)).astype("f"))
y = torch.tensor(random.integers(0, 4, rows))
if "keras" in asked:  # the weights of jax_fit.py
    number = 0
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if "tracked" in name:
                continue
            transposed = weight.permute(*range(2, weight.ndim), 1, 0) if weight.ndim > 1 else weight
            drawn = np.random.default_rng(number).normal(size=transposed.shape) * 0.3
            one = "var" in name or name == "batch_normalization.weight"
            transposed.copy_(torch.tensor(drawn + one))
            number += 1
if "different" in asked:
    x = torch.tensor(np.random.default_rng().normal(size=x.shape).astype("f"))
if "other-weights" in asked:
    with torch.no_grad():
        model.dense.weight.add_(torch.tensor(np.random.default_rng().normal()))
weights = [*model.parameters()]
optimizer: torch.optim.Optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
if "keras" in asked:
    optimizer = torch.optim.Adam(weights, lr=0.001, eps=1e-7)
if "again" in asked:
    known = torch.load(folder / "model.pt")
    model.load_state_dict(known["model"])
    optimizer.load_state_dict(known["optimizer"])
found: dict[str, list] = {"losses": [], "norms": []}
for _epoch in range(2):
    model.train()
    for start in range(0, rows, 8):
        loss = nn.functional.cross_entropy(model(x[start : start + 8]), y[start : start + 8])
        optimizer.zero_grad()
        loss.backward()
        if "keras" not in asked:
            found["norms"].append(float(nn.utils.clip_grad_norm_(weights, 0.3)))
        optimizer.step()
        found["losses"].append(loss.item())
    if "dies" in asked and torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
        raise RuntimeError("rank one has had enough")
model.eval()
with torch.no_grad():
    found["predicted"] = model(x).tolist()
if "saves" in asked:
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "model.pt"
    )
found["weights"] = [float(one.sum()) for one in model.state_dict().values()]
print(json.dumps(found))
