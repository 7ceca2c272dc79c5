"""Four PyTorch workers that train a copy each, every one with a thread for each core."""

import sys

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
WORKERS = 4


def work(done):
    from torch_model import dense, examples, step_function

    train_step = step_function(dense())
    batch = examples()
    for _ in range(STEPS):
        done.put(train_step(*batch).item())


if __name__ == "__main__":
    from workers import train_together

    train_together(work, WORKERS, STEPS)
