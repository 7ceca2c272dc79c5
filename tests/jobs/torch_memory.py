"""Steps of PyTorch with much to give up: in-place writes, drawn numbers, shared inputs."""

import argparse
import contextlib
import hashlib
import json

import numpy as np
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--wider", type=int, default=10**9, help="the step with another layer")
parser.add_argument("--narrower", type=int, default=10**9, help="the step with a layer less")
parser.add_argument("--validated", action="store_true", help="on more examples, in between")
parser.add_argument("--written", type=int, default=10**9, help="the step that writes between")
parser.add_argument("--functional", action="store_true", help="gradients of torch.func, too")
parser.add_argument("--hooked", action="store_true", help="hooks of its own around all steps")
parser.add_argument("--twice", action="store_true", help="the backward pass runs twice")
parser.add_argument("--accumulated", action="store_true", help="two backward passes a step")
parser.add_argument("--closure", action="store_true", help="the optimizer runs the step's passes")
parser.add_argument("--shifted", action="store_true", help="what is added steps before the passes")
parser.add_argument("--marked", action="store_true", help="an operator that gives out nothing")
parser.add_argument("--apart", action="store_true", help="an optimizer for each part")
parser.add_argument("--compiled", metavar="BACKEND", help="of the compiler, for the blocks")
options = parser.parse_args()


def double(x):
    x.mul_(2)


if options.marked:
    library = torch.library.Library("jobs", "DEF")
    library.define("double_(Tensor(a!) x) -> ()")
    library.impl("double_", double, "CPU")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        torch.ops.jobs.double_(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        self.second = nn.Conv2d(channels, channels, 3, padding=1, groups=groups)

    def forward(self, images):
        found = functional.relu(self.norms[0](self.first(images)), inplace=True)
        found = self.second(input=found)
        if options.marked:
            found = Doubled.apply(found)
        found = self.norms[1](found)
        found += images
        return functional.dropout(functional.gelu(found), options.dropout)


groups = 1 if options.compiled else np.int64(1)  # which breaks what is compiled
torch.manual_seed(0)
torch.set_num_threads(1)  # threads that wait in turns on a busy machine cost seconds
stem = nn.Conv2d(3, 16, 3, padding=1)
blocks = nn.Sequential(*(Block(16) for _ in range(4)))
head = nn.Linear(16, 10)
if options.compiled:
    blocks.compile(backend=options.compiled)
model = nn.ModuleList([stem, blocks, head])
parts = list(model) if options.apart else [model]
optimizer, *others = (torch.optim.SGD(part.parameters(), lr=0.05) for part in parts)
shift = nn.Parameter(torch.ones(()))
shifts = torch.optim.SGD([shift], lr=0.1)
images, labels = torch.randn(8, 3, 24, 24), torch.randint(0, 10, (8,))


def loss_of(step):
    found = stem(images)
    offset = found + (shift if options.shifted else 1)
    if step == options.written:
        with torch.no_grad():
            found.data.mul_(0.5)
    found = blocks((offset if step == options.narrower else torch.tanh(offset)) * 1.5)
    if step == options.wider:
        found = torch.sigmoid(found)
    loss = functional.cross_entropy(head(found.mean((2, 3))), labels)
    if options.functional:
        loss = loss + torch.func.grad(lambda x: (x**3).sum())(head.bias).sum()
        loss = loss + torch.vmap(head)(torch.ones(2, 3, 16)).mean()
    return loss


losses = []
hooks = (
    torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach(), lambda x: x)
    if options.hooked
    else contextlib.nullcontext()
)
with hooks:
    for step in range(options.steps):
        model.zero_grad()
        if options.closure:

            def closure(step=step):
                loss = loss_of(step)
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
            continue
        loss = loss_of(step)
        for _ in range(2 * options.shifted):
            (shift**2).backward()  # autograd does not keep a term: it may be written
            shifts.step()
        loss.backward(retain_graph=options.twice)
        if options.twice:
            loss.backward()
        if options.accumulated:
            loss_of(step).backward()
        optimizer.step()
        for other in others:
            other.step()
        losses.append(loss.item())
        if options.validated:
            with torch.no_grad():
                blocks(torch.ones(256, 16, 24, 24))

digest = hashlib.sha256()
for tensor in (*model.parameters(), *model.buffers(), *(one.grad for one in model.parameters())):
    digest.update(tensor.detach().numpy().tobytes())
with open("found.json", "w") as file:
    json.dump({"losses": losses, "digest": digest.hexdigest()}, file)
