"""Clusters in step: what they are made of, and what must hold of any."""

from __future__ import annotations

from dataclasses import dataclass, field

import fluid
import numpy as np
import pytest
from fluid import Channel
from hypothesis import given, settings
from hypothesis import strategies as st
from parameter_workers import Worker as Drawn
from parameter_workers import workers

from dltune.simulate.overlap import makespan, tac, tic
from dltune.systems.transfers.forecast import (
    Replica,
    SimulatedCluster,
    Worker,
    forecast,
    shared,
    worker,
)

NANO = 1e-9


@dataclass(frozen=True)
class Case:
    """A worker's graph, of which `sent`, by node, are gradients on their way to a server. Times in
    nanoseconds."""

    drawn: Drawn
    sent: dict[int, int] = field(default_factory=dict)

    @property
    def receives(self) -> range:
        return range(len(self.drawn.channel))

    @property
    def server(self) -> dict[int, int]:
        return {**dict(enumerate(self.drawn.channel)), **self.sent}

    def worker(self) -> Worker:
        seconds = [time * NANO for time in self.drawn.time]
        return worker(self.drawn.graph, seconds, self.receives, self.sent)

    def cluster(self, workers: int) -> SimulatedCluster:
        transfers = [*self.receives, *sorted(self.sent)]
        server = [self.server[node] for node in transfers]
        alone = [self.drawn.time[node] * NANO for node in transfers]
        return SimulatedCluster(self.worker(), workers, np.array(server, np.int32), np.array(alone))

    def replica(self) -> Replica:
        """A byte travels a nanosecond."""
        time = self.drawn.time
        received, sent = ({node: time[node] for node in own} for own in (self.receives, self.sent))
        return Replica(self.drawn.graph, np.array(time) * NANO, received, sent)


@st.composite
def cases(draw, channels: int = 2) -> Case:
    """Gradients are among the nodes that nobody reads. No op is without work, and no two things
    happen at one moment by chance."""
    drawn = draw(workers(most=5, channels=channels))
    time = tuple(1000 * (1 + t) + node for node, t in enumerate(drawn.time))
    read = {one for before in drawn.before for one in before}
    leaves = [n for n in range(len(drawn.channel), len(drawn.before)) if n not in read]
    sent = draw(st.sets(st.sampled_from(leaves))) if leaves else set()
    servers = st.integers(0, max(drawn.channel))
    by_node = {node: draw(servers) for node in sorted(sent)}
    return Case(Drawn(drawn.channel, drawn.before, time), by_node)


@given(cases(), st.data())
@settings(max_examples=150)
def test_the_oracles_steps(case: Case, data):
    """All workers' pieces on a core each, all transfers on channels between hosts."""
    count = data.draw(st.integers(1, 3))
    orders = [data.draw(st.permutations(case.receives)) for _ in range(count)]
    made, sends = case.worker(), sorted(case.sent)
    nodes = [*case.receives, *sends]
    seconds = [case.drawn.time[node] * NANO for node in nodes] + made.seconds.tolist()
    successors, where, priority = [], [], []
    for number, order in enumerate(orders):
        shift, host = number * made.tasks, 2 + number
        successors += [[shift + other for other in after] for after in made.successors]
        where += [Channel(case.server[node], host) for node in case.receives]
        where += [Channel(host, case.server[node]) for node in sends]
        where += [number] * len(made.seconds)
        priority += [float(order.index(node)) for node in case.receives]
        priority += [0.0] * (made.tasks - len(case.receives))
    end = fluid.replayed(successors, where, seconds * count, priority)
    ended = [max(end[n * made.tasks : (n + 1) * made.tasks]) for n in range(count)]
    found = case.cluster(count).step(np.array([np.argsort(order) for order in orders]))
    assert found.seconds == pytest.approx(max(ended))
    assert found.ended == pytest.approx(ended)


@given(workers(most=7, channels=2), st.randoms(use_true_random=False))
def test_one_worker_that_sends_nothing_takes_its_makespan(drawn: Drawn, chance):
    order = list(range(len(drawn.channel)))
    chance.shuffle(order)
    one = Drawn((0,) * len(order), drawn.before, drawn.time)
    found = Case(one).cluster(1).ordered(order)
    assert found.seconds / NANO == pytest.approx(makespan(one.partition, order))


@given(cases(channels=1), st.integers(2, 4))
def test_workers_in_one_order_share_a_servers_link_evenly(case: Case, count: int):
    """Each is as slow as one whose transfers take so many times as long, and none waits."""
    time = [t * count if n in case.server else t for n, t in enumerate(case.drawn.time)]
    slow = Case(Drawn(case.drawn.channel, case.drawn.before, tuple(time)), case.sent)
    several, one = (c.cluster(n).ordered(case.receives) for c, n in ((case, count), (slow, 1)))
    assert several.seconds == pytest.approx(one.seconds)
    assert several.ended == pytest.approx([*one.ended] * count)
    assert several.waiting == pytest.approx(0, abs=1e-9)


@given(workers(most=6), st.integers(1, 3), st.integers(2, 5))
def test_more_bandwidth_is_never_slower_in_one_order(drawn: Drawn, count: int, factor: int):
    replica, server = Case(drawn).replica(), Case(drawn).server
    orders = {"first": lambda part: list(range(len(part)))}
    slow, fast = (
        forecast(replica, count, server, rate / NANO, orders, chances=1).ordered["first"].seconds
        for rate in (1, factor)
    )
    assert fast <= slow * (1 + 1e-9)


@given(cases(), st.integers(1, 4))
def test_no_step_is_shorter_than_its_computing_or_a_servers_transfers(case: Case, count: int):
    computing = case.worker().seconds.sum()
    load = np.bincount(case.drawn.channel, case.drawn.time[: len(case.receives)]).max() * NANO
    for step in case.cluster(count).by_chance(3):
        assert step.seconds >= max(computing, count * load) * (1 - 1e-9)
        assert 0 <= step.waiting <= 1


def test_pieces_are_what_transfers_tell_apart():
    """Two ops before and two behind what is received second; a gradient of each half."""
    before = ((), (), (0,), (2,), (1, 3), (4,), (3,), (5,))
    case = Case(Drawn((0, 0), before, (1, 1, 2, 3, 4, 5, 6, 7)), {6: 0, 7: 0})
    made = case.worker()
    assert made.seconds / NANO == pytest.approx([2 + 3, 4 + 5])
    assert [*made.successors] == [[4], [5], [], [], [2, 5], [3]]
    # the first gradient travels while the second half is computed
    assert case.cluster(1).ordered([0, 1]).seconds / NANO == pytest.approx(1 + 5 + 9 + 7)
    assert case.cluster(1).ordered([1, 0]).seconds / NANO == pytest.approx(2 + 5 + 9 + 7)


def test_a_cycle_is_told():
    loop = Drawn((0,), ((), (0, 2), (1,)), (1, 1, 1))
    with pytest.raises(ValueError, match="2 nodes wait for each other"):
        Case(loop).worker()


def test_a_forecast_of_the_papers_first_figure():
    """In the good order computing hides a transfer: three seconds instead of four."""
    replica = Case(Drawn((0, 0), ((), (), (1,), (0, 2)), (1, 1, 1, 1))).replica()
    server = {0: 0, 1: 0}
    found = forecast(replica, 1, server, 1 / NANO, {"tac": tac, "tic": tic})
    assert found.ordered["tac"].seconds / NANO == pytest.approx(3)
    assert found.ordered["tic"].seconds / NANO == pytest.approx(4)
    assert {round(step.seconds / NANO) for step in found.none} == {3, 4}
    assert found.gain("tac") == pytest.approx(found.seconds / (3 * NANO) - 1)
    again = forecast(replica, 1, server, 1 / NANO, {})
    assert [step.seconds for step in again.none] == [step.seconds for step in found.none]


def test_orders_by_chance_make_workers_wait_for_each_other():
    """Of two workers, one may be served well and the other badly: two of thirteen seconds."""
    replica = Case(Drawn((0, 0), ((), (), (1,), (0, 2)), (1, 1, 8, 1))).replica()
    found = forecast(replica, 2, {0: 0, 1: 0}, 1 / NANO, {"tac": tac})
    assert {round(13 * step.waiting, 6) for step in found.none} == {0, 2}
    assert found.ordered["tac"].waiting == 0


def test_an_order_is_found_with_the_times_that_links_shared_by_all_leave():
    replica = Case(Drawn((0, 1, 1), ((), (), (), (0, 1, 2)), (4, 3, 2, 5))).replica()
    part = shared(replica, 3, {0: 0, 1: 1, 2: 1}, 1 / NANO)
    assert part.transfer.tolist() == [12, 9, 6]
    assert part.channel.tolist() == [0, 1, 1]
    # two servers at once fill the link of one worker
    part = shared(replica, 1, {0: 0, 1: 1, 2: 1}, 1 / NANO)
    assert part.transfer.tolist() == [8, 6, 4]
