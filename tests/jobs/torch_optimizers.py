"""Optimizers of several kinds, in turn: their losses, and what they say of themselves."""

import contextlib
import json

import torch
from torch import nn

OPTIMIZERS = {
    "Adam": {},
    "AdamW": {"amsgrad": True, "weight_decay": 0.1},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adagrad": {},
    "Adam given a closure": {},
    "RMSprop": {},
    "SGD told foreach": {"foreach": True},
    "SGD of sparse gradients": {},
    "Adam in float64": {},
    "SGD with gradients that come later": {"momentum": 0.9},
    "SGD given a closure with gradients that come later": {"momentum": 0.9},
    "SGD with gradients that lie otherwise": {},
    "Adam of a part of a tensor": {},
}


def trained(name, options):
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64 if "float64" in name else torch.float32)
    words = nn.Embedding(20, 8, sparse="sparse" in name)
    model = nn.Sequential(words, nn.Flatten(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 1))
    if "part" in name:
        model[2].weight = nn.Parameter(torch.randn(16, 40).mul_(0.1)[:, :32])
    optimizer = getattr(torch.optim, name.split()[0])(model.parameters(), lr=0.02, **options)
    inputs, wanted = torch.randint(0, 20, (8, 4)), torch.randn(8, 1)
    losses, fused = [], []

    def gradients():
        optimizer.zero_grad()
        loss = (model(inputs) - wanted).pow(2).mean()
        loss.backward()
        losses.append(loss.item())
        if "otherwise" in name:
            model[2].weight.grad = model[2].weight.grad.t().contiguous().t()
        return loss

    def note(*_):
        fused.append(optimizer.param_groups[0].get("fused"))

    optimizer.register_step_pre_hook(note)  # after those of all optimizers
    for step in range(5):
        model[2].weight.requires_grad_("later" not in name or step > 1)
        if "closure" in name:
            optimizer.step(gradients)
        else:
            gradients()
            optimizer.step()
    if "closure" in name:  # whose step fails, and it is saved all the same
        with contextlib.suppress(KeyError):
            optimizer.step(lambda: {}["loss"])
    saved = optimizer.state_dict()["param_groups"][0].get("fused")
    return {"losses": losses, "fused": fused, "saved": saved}


with open("found.json", "w") as file:
    json.dump({name: trained(name, options) for name, options in OPTIMIZERS.items()}, file)
