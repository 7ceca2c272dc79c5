"""The way of data from one device to another: over the shortest path, held up by its slowest
link."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dltune.base.errors import UsageError
from dltune.systems.parallelism.schemas.topology import Topology

NOMINAL = 2**20  # bytes, whose time over a link says how long the link is


@dataclass(frozen=True)
class Routes:
    """For each ordered pair of devices, shape (devices, devices): the `channel` that a transfer
    keeps busy, seconds of `latency`, and `per_byte`, seconds. Resources are numbered on from the
    devices: `channels` has each channel's name."""

    channel: NDArray[np.int32]
    latency: NDArray[np.float64]
    per_byte: NDArray[np.float64]
    channels: tuple[str, ...]


def routes(topology: Topology) -> Routes:
    """Raises UsageError when two devices have no path between them."""
    count = len(topology.devices)
    names = [*(device.name for device in topology.devices), *topology.switches]
    place = {name: n for n, name in enumerate(names)}
    ways: list[list[tuple[int, int, float, float]]] = [[] for _ in names]
    channels: list[str] = []
    for link in topology.links:
        a, b = (place[end] for end in link.ends)
        for n, (here, there) in enumerate(((a, b), (b, a))):
            if n == 0 or not link.shared:
                arrow = "-" if link.shared else ">"
                channels.append(f"{names[here]} {arrow} {names[there]}")
            ways[here].append((there, count + len(channels) - 1, link.latency, link.bandwidth))
    channel = np.zeros((count, count), np.int32)
    latency, per_byte = np.zeros((count, count)), np.zeros((count, count))
    for here in range(count):
        paths = _paths(ways, here)
        for there in range(count):
            if there == here:
                continue
            if there not in paths:
                raise UsageError(
                    f"the topology has no path from {names[here]} to {names[there]}",
                    remedy="add the missing link, or remove the device",
                )
            seconds, narrowest, across = paths[there]
            latency[here, there], per_byte[here, there] = seconds, 1.0 / narrowest
            channel[here, there] = across if topology.overlap else here
    return Routes(channel, latency, per_byte, tuple(channels))


def _paths(
    ways: list[list[tuple[int, int, float, float]]], start: int
) -> dict[int, tuple[float, float, int]]:
    """By node: latency, least bandwidth and the channel that has it, on the shortest path."""
    paths: dict[int, tuple[float, float, int]] = {}
    turn = itertools.count()  # of paths as long, the first
    queue = [(0.0, next(turn), start, 0.0, float("inf"), -1)]
    while queue:
        length, _, here, seconds, narrowest, across = heapq.heappop(queue)
        if here in paths:
            continue
        paths[here] = seconds, narrowest, across
        for there, channel, latency, bandwidth in ways[here]:
            if there not in paths:
                least = (bandwidth, channel) if bandwidth < narrowest else (narrowest, across)
                step = length + latency + NOMINAL / bandwidth
                queue_entry = (step, next(turn), there, seconds + latency, *least)
                heapq.heappush(queue, queue_entry)
    return paths
