"""Tasks on cores and on channels between hosts that share links, slowly: everything is looked at
again at every event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DONE = 1e-12  # seconds, as in engine.h


@dataclass(frozen=True)
class Channel:
    sender: int
    receiver: int


def replayed(
    successors: Sequence[Sequence[int]],
    where: Sequence[int | Channel],
    seconds: Sequence[float],
    priority: Sequence[float],
) -> list[float]:
    """By task, when it ends. `where`: the core that it runs on, first come, first served, or the
    channel that it travels over, the lowest priority number first."""
    count = len(successors)
    waits = [sum(task in after for after in successors) for task in range(count)]
    left, end, start = list(map(float, seconds)), [0.0] * count, [0.0] * count
    ready = [task for task in range(count) if not waits[task]]
    busy: dict[int | Channel, int] = {}
    now = 0.0
    while ready or busy:
        for what in dict.fromkeys(where[task] for task in ready):
            mine = [task for task in ready if where[task] == what]
            if what not in busy:
                own = isinstance(what, Channel)
                busy[what] = min(mine, key=lambda t: priority[t]) if own else mine[0]
                start[busy[what]] = now
                ready.remove(busy[what])
        rate = shares(list(busy))
        step = min(left[task] / rate[what] for what, task in busy.items())
        now += step
        ended = []
        for what, task in list(busy.items()):
            left[task] -= step * rate[what]
            if left[task] <= DONE:
                end[task] = now
                ended.append(task)
                del busy[what]
        for task in sorted(ended, key=start.__getitem__):
            for after in successors[task]:
                waits[after] -= 1
                if not waits[after]:
                    ready.append(after)
    return end


def shares(busy: Sequence[int | Channel]) -> dict[int | Channel, float]:
    """A core is its task's own. Of channels, max-min: the links fill one after the other, that with
    the least for each of its channels first."""
    rate: dict[int | Channel, float] = {what: 1.0 for what in busy if not isinstance(what, Channel)}
    flows = [what for what in busy if isinstance(what, Channel)]
    links = {flow: (("out", flow.sender), ("in", flow.receiver)) for flow in flows}
    room = {link: 1.0 for both in links.values() for link in both}
    while flows:
        users = {link: [flow for flow in flows if link in links[flow]] for link in room}
        share, link = min((room[one] / len(own), one) for one, own in users.items() if own)
        for flow in users[link]:
            rate[flow] = share
            for one in links[flow]:
                room[one] -= share
        flows = [flow for flow in flows if flow not in rate]
    return rate
