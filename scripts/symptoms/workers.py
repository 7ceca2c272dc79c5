"""Processes that train a copy each, beside one another."""

import multiprocessing

from clock import Clock


def train_together(work, workers, steps):
    """`work(queue)` in each of so many; it puts the loss of each of its `steps` into the queue."""
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    for _ in range(workers):
        context.Process(target=work, args=(done,), daemon=True).start()
    clock = Clock()
    for _ in range(workers * steps):
        clock.step(done.get())
    clock.end()
