"""A job without TensorFlow that speaks to dltune as one with the plugin does.

    python pretended_job.py [--steps N] [--graphs N] [--turns N]

It ends after so many steps, or turns: how many steps come before the first turn depends on how busy
the machine is. A step takes STEP seconds. Kept oneDNN primitives (a variable that a setting sets)
make it fast; XLA's auto-clustering ends the job at once, oneDNN on the caller's thread lets it hang
before its first step, and three intra-op threads after the fifth turn.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
import time

# so far apart that what a busy machine adds to a short sleep is little beside a long one
STEP, FAST = 0.02, 0.001


class Plugin:
    """Orders come on a thread of their own, as they do in the plugin."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(os.environ["DLTUNE_SOCKET"])
        self._changed = threading.Condition()
        self._ready = False
        self.discovers = self.stops = False
        self.uniform: list[str] = []
        self._grants = 0
        self.turns = 0
        about = {"pid": os.getpid(), "version": "2.21.0", "git": "", "python": "3.11"}
        self.tell(type="plugin", **about)
        threading.Thread(target=self._hear, daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._ready)

    def tell(self, **message: object) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self) -> None:
        for line in self._socket.makefile():
            word, *fields = line.rstrip("\n").split("\t")
            with self._changed:
                if word == "begin":
                    self.discovers = self.stops = False
                elif word == "discover":
                    self.discovers = True
                elif word == "barrier":
                    self.stops = True
                elif word == "uniform":
                    self.uniform = fields
                elif word == "grant":
                    self._grants += int(fields[0])
                elif word == "report":
                    admission = {"admitted": 0, "second_threads": 0, "in_flight": 0, "avoided": []}
                    self.tell(type="report", why="asked", xla=0, unmarked=0, admission=admission)
                elif word == "ready":
                    self._ready = True
                self._changed.notify()

    def wait_at_barrier(self) -> None:
        with self._changed:
            if not self.stops:
                return
            if not self._grants:
                if self.turns == self._most:
                    sys.exit()
                self.turns += 1
                self.tell(type="waiting", at=time.monotonic_ns())
                self._changed.wait_for(lambda: self._grants)
            self._grants -= 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--graphs", type=int, default=1)
    parser.add_argument("--turns", type=int, default=1_000_000)
    args = parser.parse_args()
    if "tf_xla_auto_jit" in os.environ.get("TF_XLA_FLAGS", ""):
        sys.exit("this job cannot stand XLA")
    plugin = Plugin(args.turns)
    if os.environ.get("TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD") == "true":
        time.sleep(3600)
    names = ["_Arg", "ReadVariableOp", "Conv2D", "Conv2DBackpropFilter", "AssignSubVariableOp"]
    nodes = [[f"layer/{n}", n, [], [], False] for n in names]
    for graph in range(args.graphs):
        plugin.tell(
            type="graph", id=graph, signature=f"s{graph}", name="", device="CPU:0", xla=False,
            nodes=[[f"{graph}/{node[0]}", *node[1:]] for node in nodes],
        )  # fmt: skip
    plugin.tell(type="key", id=0, key="Conv2D", op="Conv2D", inputs="float[1]")
    for step in range(args.steps):
        for graph in range(args.graphs):
            plugin.wait_at_barrier()
            start = time.monotonic_ns()
            kept = os.environ.get("TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE") == "false"
            time.sleep((FAST if kept else STEP) / args.graphs)
            if plugin.uniform[:1] == ["3"] and plugin.turns > 5:
                time.sleep(3600)
            took = time.monotonic_ns() - start
            if plugin.discovers or plugin.stops:
                events = [[2, 0, 0, 0, 0, took, "1"]] if plugin.discovers else []
                plugin.tell(
                    type="execution", graph=graph, number=step, version=1, start=start,
                    overhead=0, live=0, peak=0, events=events,
                )  # fmt: skip


if __name__ == "__main__":
    main()
