"""What comes of loaders of several kinds, by the process that prepared it."""

import json
import os
import random
import threading

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

torch.manual_seed(0)
table = torch.arange(48.0).reshape(12, 4)
shared_noise = numpy.random.default_rng(0)
shared_file = open(__file__, "rb")  # noqa: SIM115 - as datasets do


class Rows(Dataset):
    def __len__(self):
        return len(table)

    def __getitem__(self, index):
        return self.changed(table[index]), os.getpid()

    def changed(self, row):
        return row * 2


class Noisy(Rows):
    def changed(self, row):
        return row + random.random()


class OwnNoise(Rows):
    def __init__(self):
        self.noise = [numpy.random.default_rng(0)]

    def changed(self, row):
        return row + self.noise[0].random()


class SharedNoise(Rows):
    """Its source is the module's."""

    def changed(self, row):
        return row + shared_noise.random()


class Counting(Rows):
    seen = 0

    def changed(self, row):
        Counting.seen += 1
        return row + Counting.seen


class Reading(Rows):
    def __init__(self):
        self.file = open(__file__, "rb")  # noqa: SIM115

    def changed(self, row):
        return row + len(self.file.read(1))


class ReadingShared(Rows):
    def changed(self, row):
        shared_file.seek(0)
        return row + len(shared_file.readline())


class Parent(Rows):
    """Only where it was made."""

    def __init__(self):
        self.pid = os.getpid()

    def changed(self, row):
        if os.getpid() != self.pid:
            raise RuntimeError("not here")
        return row


class Growing(Rows):
    """Changed by the script, as data that are told what is wanted of them."""

    factor = 1

    def changed(self, row):
        return row * self.factor


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(row, os.getpid()) for row in table])


def noisy_batch(examples):
    rows, pids = zip(*examples, strict=True)
    return torch.stack(rows) + torch.rand(4), torch.tensor(pids)


class Shuffled:
    """A sampler of batches that acts, and draws, as soon as it is asked."""

    def __init__(self):
        self.batches = [[row, row + 1] for row in range(0, len(table) - 1, 2)]
        self.asked = 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.asked += 1
        random.shuffle(self.batches)
        return iter(list(self.batches))


loaders = {
    "plain": DataLoader(Rows(), 3),
    "shuffled": DataLoader(Rows(), 3, shuffle=True),
    "one by one": DataLoader(Rows(), None),
    "noisy": DataLoader(Noisy(), 3),
    "own noise": DataLoader(OwnNoise(), 3),
    "noisy batch": DataLoader(Rows(), 3, collate_fn=noisy_batch),
    "shared noise": DataLoader(SharedNoise(), 3),
    "counting": DataLoader(Counting(), 3),
    "reading": DataLoader(Reading(), 3),
    "reading shared": DataLoader(ReadingShared(), 3),
    "parent's": DataLoader(Parent(), 3),
    "stream": DataLoader(Stream(), 3),
    "asked at once": DataLoader(Rows(), batch_sampler=Shuffled()),
    "empty": DataLoader(TensorDataset(table[:0]), 3),
    "with a worker": DataLoader(Rows(), 3, num_workers=1),
    "further ahead": DataLoader(Rows(), 3, num_workers=1, prefetch_factor=3),
}
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
found = {}
for name, loader in loaders.items():
    random.seed(0)
    losses, elsewhere = [], set()
    for _ in range(2):
        for batch in loader:
            rows, pids = batch
            loss = model(rows).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            elsewhere |= {pid != os.getpid() for pid in torch.as_tensor(pids).flatten().tolist()}
    found[name] = {
        "losses": losses,
        "elsewhere": sorted(elsewhere),
        "workers": loader.num_workers,
        "ahead": loader.prefetch_factor,
        "context": str(loader.multiprocessing_context),
    }
pairs = zip(loaders["shuffled"], DataLoader(Rows(), 3, shuffle=True), strict=True)
found["two at a time"] = [[one[0].tolist(), other[0].tolist()] for one, other in pairs]
begun = iter(loaders["shuffled"])
found["begun"] = [torch.rand(1).item(), *(rows.tolist() for rows, _ in begun)]
growing = Growing()
grown = iter(DataLoader(growing, 3))
growing.factor = 3
batches = list(grown)
found["grown"] = [rows.tolist() for rows, _ in batches]
grown_elsewhere = [pid != os.getpid() for _, pids in batches for pid in pids.tolist()]
found["never begun"] = [iter(loaders["shuffled"]) is None, torch.rand(1).item()]
kept = [rows for _ in range(3) for rows, _ in loaders["plain"]]
found["asked"] = loaders["asked at once"].batch_sampler.asked
found["kept"] = [rows.is_shared() for rows in kept]
found["drawn"] = [torch.rand(1).item(), random.random()]
found["grown elsewhere"] = all(grown_elsewhere)


def read_byte_by_byte():
    """While a loader's first batch is tried, whose child has this file open, too."""
    with open(__file__, "rb", buffering=0) as own:
        pieces = iter(lambda: own.read(1), b"")
        found["read meanwhile"] = b"".join(pieces).decode()


meanwhile = threading.Thread(target=read_byte_by_byte)
meanwhile.start()
list(DataLoader(Rows(), 3))
meanwhile.join()
with open("found.json", "w") as file:
    json.dump(found, file)
