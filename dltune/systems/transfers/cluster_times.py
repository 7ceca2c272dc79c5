"""Synchronous steps of several workers and the servers that hold their parameters, simulated.

All workers run the same graph, one op at a time. A step begins with all of them asking for all
parameters, and ends when the last op and the last gradient are done: what servers do with gradients
takes no time (TicTac, section 2.2). Each host has one link out and one in. A server and a worker
have one transfer under way at once (section 5.1), of parameters in the order that the server has
for this worker, of gradients as they are ready; the servers of one worker and the workers of one
server share links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dltune.simulate.engine import CoreSet, FifoWork, Graph, Network
from dltune.simulate.step_graph import CSR, Integers, Numbers
from dltune.systems.transfers.worker import Worker

# computing is counted in seconds of one op
_SECOND = FifoWork(1.0, 1.0, 1)


@dataclass(frozen=True)
class ClusterStep:
    """`seconds`: of the whole step. `ended`: by worker, when it had done the last of its own."""

    seconds: float
    ended: Sequence[float]

    @property
    def waiting(self) -> float:
        """The straggler effect (section 6.3): the part of the step in which the worker that was
        done first waits."""
        return 1.0 - min(self.ended) / self.seconds if self.seconds else 0.0


class Cluster:
    """`server`: by transfer of a worker, receives first, the number of the server at the other end;
    `alone`: the transfer's seconds where it shares no link."""

    def __init__(self, worker: Worker, workers: int, server: Integers, alone: Numbers) -> None:
        self.workers = workers
        self._worker = worker
        transfers, servers = len(server), int(server.max(initial=0)) + 1
        pieces = worker.tasks - transfers
        each = np.arange(workers)[:, None]
        # a channel to each worker from each server, then as many back
        channel = (
            each * servers
            + server
            + np.repeat([0, workers * servers], [worker.receives, worker.sends])
        )
        cores = np.broadcast_to(each, (workers, pieces))
        self._where = np.hstack((workers + channel, cores)).astype(np.int32).ravel()
        self._seconds = np.tile(np.append(alone, np.zeros(pieces)), workers)
        client, host = np.divmod(np.arange(workers * servers, dtype=np.int32), np.int32(servers))
        client += np.int32(servers)
        self._network = Network(np.append(host, client), np.append(client, host))
        own = worker.successors
        starts = (own.offsets[:-1] + each * len(own.items)).ravel()
        successors = CSR(
            np.append(starts, workers * len(own.items)).astype(np.int32),
            (own.items + each * worker.tasks).astype(np.int32).ravel(),
        )
        op = np.repeat([-1, 0], [transfers, pieces]).astype(np.int32)
        runs = np.append(np.zeros(transfers), worker.seconds)
        self._graph = Graph(successors, np.tile(op, workers), np.tile(runs, workers))

    def step(self, places: NDArray[np.integer]) -> ClusterStep:
        """`places`: by worker and receive, the place in its server's order: the lowest first."""
        priority = np.zeros((self.workers, self._worker.tasks))
        priority[:, : self._worker.receives] = places
        made = self._graph.across(
            [CoreSet([_SECOND], cores=1, inter=1)] * self.workers,
            self._network,
            self._where,
            self._seconds,
            priority.ravel(),
        )
        ended = np.array(made.end).reshape(self.workers, -1).max(axis=1)
        return ClusterStep(made.makespan, ended.tolist())

    def ordered(self, order: Sequence[int]) -> ClusterStep:
        """With all workers served in one order of the receives."""
        return self.step(np.argsort(order))

    def by_chance(self, steps: int, seed: int = 0) -> list[ClusterStep]:
        """With an order by chance for each worker and step."""
        chance = np.random.default_rng(seed)
        places = np.tile(np.arange(self._worker.receives), (self.workers, 1))
        return [self.step(chance.permuted(places, axis=1)) for _ in range(steps)]
