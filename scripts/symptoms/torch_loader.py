"""Examples that a Dataset of PyTorch's makes in Python, while the step waits for them."""

import sys

import torch
from clock import Clock
from torch.utils.data import DataLoader, Dataset
from torch_model import dense, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
WORDS, LENGTH, BATCH = 512, 1000, 64
vocabulary = {f"word{i}": i for i in range(WORDS)}
generator = torch.Generator().manual_seed(0)
text = [f"word{i}" for i in torch.randint(0, WORDS, (50_000,), generator=generator).tolist()]


class Bags(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        bag = [0.0] * WORDS
        start = index % (len(text) - LENGTH)
        for word in text[start : start + LENGTH]:
            bag[vocabulary[word]] += 1.0
        return torch.tensor(bag), index % 10


if __name__ == "__main__":
    train_step = step_function(dense(units=WORDS, depth=1))
    clock = Clock()
    for bags, labels in DataLoader(Bags(), BATCH):
        clock.step(train_step(bags, labels))
    clock.end()
