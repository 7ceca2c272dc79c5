"""Is a step with part of its memory in a file as long as simulated? Its blocks are real, and so are
the copies, in threads of their own; only its ops are slept through.

    python scripts/research/run_swaps.py PROFILE [--seconds 2]

Each block holds its own number wherever it is used, and what is held at once never exceeds the
budget: both are checked. Storage is held to a speed below its own.
"""

from __future__ import annotations

import argparse
import os
import queue
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dltune.schemas import profile
from dltune.systems.memory.model.profiled_step import measured
from dltune.systems.memory.model.schedule import Accesses, Step, accesses
from dltune.systems.memory.offload import Swap, cached, hidden, overlapped, with_file

MIB = 1 << 20
CHUNK = 1 << 18  # bytes after which a copy looks at the clock
NAP = 1e-3  # seconds; shorter ops are slept through together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", type=Path)
    parser.add_argument("--seconds", type=float, help="of computing in a step, in place of its own")
    arguments = parser.parse_args()
    job = measured(profile.load(arguments.profile).steps[0])
    uses = accesses(job.graph, [Step(node) for node in job.order], job.written)
    scale = arguments.seconds / sum(job.seconds) if arguments.seconds else 1.0
    seconds = [job.seconds[node] * scale for node in job.order]
    peak = int(uses.levels.max())
    rows: list[tuple[int, float, str, list[Swap]]] = [(peak, 1e9, "all near", [])]
    for part in (0.5, 0.35):
        for speed in (250e6, 500e6):
            tiers = with_file(int(part * peak), 1 << 40, speed)
            own = hidden(uses, seconds, tiers.near, tiers.far[0])
            rows.append((tiers.near, speed, "ours", own))
            rows.append((tiers.near, speed, "cache", cached(uses, tiers.near)))
    print("| MiB | MB/s | way | simulated, s | run, s | off |\n|---|---|---|---|---|---|")
    for near, speed, name, swaps in rows:
        simulated = overlapped(uses, seconds, swaps, with_file(near, 1 << 40, speed)).seconds
        took = sorted(Run(uses, seconds, swaps, near, speed).run() for _ in range(3))[1]
        print(f"| {near / MIB:.0f} | {speed / 1e6:.0f} | {name} | {simulated:.3f} | {took:.3f} | "
              f"{took / simulated - 1:+.1%} |", flush=True)  # fmt: skip


class Engine:
    """Copies in one direction, the most urgent of those that wait first."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.waiting: queue.PriorityQueue[tuple[int, int]] = queue.PriorityQueue()

    def copy(self, file: int, data: NDArray[np.uint8], at: int, *, out: bool) -> None:
        """No faster than `speed`."""
        view, began = memoryview(data), time.perf_counter()
        for low in range(0, len(view), CHUNK):
            piece = view[low : low + CHUNK]
            done = os.pwrite(file, piece, at + low) if out else os.preadv(file, [piece], at + low)
            assert done == len(piece)
            time.sleep(max(0.0, began + (low + done) / self.speed - time.perf_counter()))


class Run:
    def __init__(
        self,
        uses: Accesses,
        seconds: Sequence[float],
        swaps: Sequence[Swap],
        budget: int,
        speed: float,
    ) -> None:
        self.uses, self.seconds, self.swaps, self.budget = uses, seconds, swaps, budget
        self.bytes = uses.bytes
        self.near: dict[int, NDArray[np.uint8]] = {}
        self.held = 0
        self.places = np.concatenate(([0], np.cumsum([self.bytes[one.block] for one in swaps])))
        self.engines = {"out": Engine(speed), "in": Engine(speed)}
        self.done = {way: [threading.Event() for _ in swaps] for way in self.engines}

    def run(self) -> float:
        """Seconds that the step took."""
        with tempfile.TemporaryFile() as file:
            threads = [
                threading.Thread(target=self._serve, args=(way, file.fileno()), daemon=True)
                for way in self.engines
            ]
            for thread in threads:
                thread.start()
            began = time.perf_counter()
            try:
                self._steps()
                return time.perf_counter() - began
            finally:
                for engine in self.engines.values():
                    engine.waiting.put((1 << 30, -1))
                for thread in threads:
                    thread.join()

    def _steps(self) -> None:
        by = {key: self._by(key) for key in ("out", "freed", "back", "use")}
        ended: dict[int, list[int]] = {}
        for block, end in enumerate(self.uses.lives.end.tolist()):
            ended.setdefault(end, []).append(block)
        owed = 0.0
        for now, row in enumerate(self.uses.touched):
            for block in ended.get(now, ()):
                self._give_back(block)
            for swap in by["freed"].get(now, ()):
                owed = self._await("out", swap, owed)
                self._give_back(self.swaps[swap].block)
            for swap in by["back"].get(now, ()):
                self._take(self.swaps[swap].block, 0)
                self.engines["in"].waiting.put((self.swaps[swap].use, swap))
            for swap in by["use"].get(now, ()):
                owed = self._await("in", swap, owed)
            began = time.perf_counter()
            for block in row:
                if block not in self.near:
                    self._take(block, block % 251 + 1)
                held = self.near[block]
                assert not len(held) or held[0] == held[-1] == block % 251 + 1
            # an op writes what it gives out within its own time
            owed = self._sleep(owed + self.seconds[now] - (time.perf_counter() - began))
            for swap in by["out"].get(now, ()):
                self.engines["out"].waiting.put((self.swaps[swap].freed, swap))
        self._sleep(owed, at_least=0.0)

    def _by(self, key: str) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, swap in enumerate(self.swaps):
            found.setdefault(getattr(swap, key), []).append(number)
        return found

    def _await(self, way: str, swap: int, owed: float) -> float:
        """What is owed is slept first: the ops run before the copy is waited for."""
        owed = self._sleep(owed, at_least=0.0)
        if not self.done[way][swap].wait(timeout=60):
            raise TimeoutError(f"{self.swaps[swap]} was not copied")
        return owed

    def _sleep(self, owed: float, at_least: float = NAP) -> float:
        """What was slept too long is owed less."""
        if owed <= at_least:
            return owed
        began = time.perf_counter()
        time.sleep(owed)
        return owed - (time.perf_counter() - began)

    def _take(self, block: int, value: int) -> None:
        self.held += self.bytes[block]
        assert self.held <= self.budget
        self.near[block] = np.full(self.bytes[block], value, np.uint8)

    def _give_back(self, block: int) -> None:
        if self.near.pop(block, None) is not None:
            self.held -= self.bytes[block]

    def _serve(self, way: str, file: int) -> None:
        engine = self.engines[way]
        while (number := engine.waiting.get()[1]) >= 0:
            swap = self.swaps[number]
            data = self.near[swap.block]
            engine.copy(file, data, int(self.places[number]), out=way == "out")
            self.done[way][number].set()


if __name__ == "__main__":
    main()
