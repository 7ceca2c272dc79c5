"""What PyTorch's settings find in a script, what came of them, and the losses of its steps."""

import argparse
import json
import warnings

import torch
import torch._dynamo
from torch import nn
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--view", default="flat", choices=["flat", "folded"])
parser.add_argument("--compiled", action="store_true", help="by the script itself")
parser.add_argument("--twice", action="store_true", help="gradients of gradients")
parser.add_argument("--closure", action="store_true", help="in which the step's passes run")
parser.add_argument("--kept", action="store_true", help="the data of a weight, for an average")
parser.add_argument("--dropout", type=float, default=0.0)
args = parser.parse_args()
warnings.simplefilter("ignore")

# scripts that run in one process share the compiler's counters
compiled_before = torch._dynamo.utils.counters["frames"]["ok"]
torch.manual_seed(0)
images, labels = torch.randn(8, 3, 12, 12), torch.randint(0, 10, (8,))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.drop = nn.Dropout(args.dropout)
        self.flat = nn.Linear(8 * 144, 10)
        self.folded = nn.Conv1d(4, 10, 288)

    def forward(self, x):
        x = self.second(torch.relu(self.norm(self.first(x))))
        layouts.append(x.is_contiguous(memory_format=torch.channels_last))
        if args.view == "folded":
            return self.folded(self.drop(x.view(8, 4, 288))).flatten(1)
        return self.flat(self.drop(x.view(8, -1)))


layouts: list[bool] = []
model = Network()
normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 1))
first = model.first.weight
kept = model.second.weight.data if args.kept else None
if args.compiled:
    model = torch.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []


def passes():
    global output
    optimizer.zero_grad()
    output = model(images)
    loss = cross_entropy(output, labels)
    loss.backward(create_graph=args.twice)
    return loss


for _ in range(6):
    if args.closure:
        losses.append(optimizer.step(passes).item())
        continue
    loss = passes()
    optimizer.step()
    losses.append(loss.item())

product = torch.ones(2, 2) @ torch.full((2, 2), 1.0 + 2.0**-10)
found = {
    "losses": losses,
    "layouts": layouts,
    "contiguous": first.is_contiguous(),
    "state": optimizer.state[first]["exp_avg"].stride() == first.stride(),
    "kept": kept is None or torch.equal(kept, model.second.weight),
    "same": first is next(model.parameters()),
    "output": str(output.dtype),
    "product": product.float().sum().item(),
    "tiny": (torch.tensor(1e-39) * torch.ones(1)).item(),
    "compiled": torch._dynamo.utils.counters["frames"]["ok"] - compiled_before,
}
with open("found.json", "w") as file:
    json.dump(found, file)
