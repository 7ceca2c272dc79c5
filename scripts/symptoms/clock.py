"""The jobs' own clock: how many steps are done after how many seconds, twice a second."""

import time


class Clock:
    """Prints as the job goes, so that a job that is ended early has told its speed, too."""

    def __init__(self):
        self.began = self.told = time.perf_counter()
        self.steps = 0

    def step(self, loss, steps=1):
        """After each step, or several. The loss is read only where it is printed."""
        self.steps += steps
        now = time.perf_counter()
        if now - self.told > 0.5:
            self.told = now
            print(f"step {self.steps} {now - self.began:.3f} s loss {float(loss):.5f}", flush=True)

    def end(self):
        seconds = time.perf_counter() - self.began
        print(f"{self.steps} steps, {self.steps / seconds:.2f} steps/s", flush=True)
