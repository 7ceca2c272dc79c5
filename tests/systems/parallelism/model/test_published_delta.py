"""Algorithm 2 of Jia, Zaharia and Aiken (2018, section 5.3), the delta simulation: as published its
timeline may differ from that of the full simulation. It never does where tasks that another one
passes in their device's order are queued again.

docs/explanation/decisions/delta-simulation.md has the counterexample and the shares.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from random import Random

import pytest
from parallelism_oracle import Id, Task, Times, makespan, simulated

P, Q, R = ((n,) for n in range(3))
X, Y, A, B = ((n,) for n in range(4))


def delta(
    tasks: Mapping[Id, Task], times: Mapping[Id, Times], changed: Id, requeue: bool
) -> dict[Id, Times]:
    """The times of `tasks` from those before `changed` took another time. `requeue`: what the paper
    does not do.

    Of two tasks that are ready at one moment that of the smaller id goes first, in a device's order
    and in the queue. Raises RuntimeError when it does not end.
    """
    ready = {name: one.ready for name, one in times.items()}
    start = {name: one.start for name, one in times.items()}
    end = {name: one.end for name, one in times.items()}
    orders: dict[int, list[Id]] = {}
    for name in sorted(tasks, key=lambda one: (ready[one], one)):
        orders.setdefault(tasks[name].resource, []).append(name)
    queue: list[tuple[int, Id]] = []

    def push(name: Id) -> None:
        heapq.heappush(queue, (ready[name], name))

    def begins(name: Id) -> int:
        order = orders[tasks[name].resource]
        at = order.index(name)
        return max(ready[name], end[order[at - 1]] if at else 0)

    def update(name: Id) -> bool:
        before = ready[name], start[name]
        ready[name] = max((end[one] for one in tasks[name].after), default=0)
        order = orders[tasks[name].resource]
        was = order.index(name)
        order.sort(key=lambda one: (ready[one], one))  # `name` alone can stand elsewhere then
        now = order.index(name)
        if requeue and was != now:
            # those that it passed, and that which comes after the last of them
            for one in order[min(was, now) : max(was, now) + 2]:
                push(one)
        start[name] = begins(name)
        return before != (ready[name], start[name])

    push(changed)
    for _ in range(1000 * len(tasks)):
        if not queue:
            return {name: Times(ready[name], start[name], end[name]) for name in tasks}
        _, name = heapq.heappop(queue)
        start[name] = begins(name)
        end[name] = start[name] + tasks[name].ns
        for one in tasks:
            if name in tasks[one].after and update(one):
                push(one)
        order = orders[tasks[name].resource]
        following = order[order.index(name) + 1 :]
        if following and update(following[0]):
            push(following[0])
    raise RuntimeError("the delta simulation does not end")


def changed(tasks: Mapping[Id, Task], name: Id, ns: int) -> dict[Id, Task]:
    one = tasks[name]
    return {**tasks, name: Task(one.resource, ns, one.after)}


def spans(times: Mapping[Id, Times]) -> dict[Id, tuple[int, int]]:
    return {name: (one.start, one.end) for name, one in times.items()}


def test_the_smallest_counterexample():
    """A chain: P, then Q, then R; P comes to take 3 ns:

                     device 0   device 1
        before       P          . Q R R
        after        P P P      . . . Q R R
        published    P P P      . . . . Q R R

    Q, ready at 3, is put behind R, which was to be ready at 2, and is to begin when R ends, at 4.
    Then Q has run, R moves behind it again, and nobody looks at Q again.
    """
    tasks = {P: Task(0, 1), Q: Task(1, 1, {P}), R: Task(1, 2, {Q})}
    before = simulated(tasks)
    assert spans(before) == {P: (0, 1), Q: (1, 2), R: (2, 4)}
    longer = changed(tasks, P, 3)
    full = simulated(longer)
    assert spans(full) == {P: (0, 3), Q: (3, 4), R: (4, 6)}
    published = delta(longer, before, P, requeue=False)
    assert spans(published) == {P: (0, 3), Q: (4, 5), R: (5, 7)}
    assert delta(longer, before, P, requeue=True) == full


def test_a_counterexample_without_waiting_on_one_device():
    """A waits for X, and B for Y. X comes to take longer, so that B passes A:

                     device 0      device 1   device 2
        before       . A A B       X          Y Y
        after        . . B A A     X X X      Y Y
        published    . . . B A A   X X X      Y Y

    A begins when B ends; but B, which nobody looks at, is where it was behind A.
    """
    tasks = {X: Task(1, 1), Y: Task(2, 2), A: Task(0, 2, {X}), B: Task(0, 1, {Y})}
    before = simulated(tasks)
    assert spans(before) == {X: (0, 1), Y: (0, 2), A: (1, 3), B: (3, 4)}
    longer = changed(tasks, X, 3)
    full = simulated(longer)
    assert spans(full) == {X: (0, 3), Y: (0, 2), B: (2, 3), A: (3, 5)}
    published = delta(longer, before, X, requeue=False)
    assert spans(published) == {X: (0, 3), Y: (0, 2), B: (3, 4), A: (4, 6)}
    assert delta(longer, before, X, requeue=True) == full


def test_there_is_none_of_fewer_tasks():
    """All graphs of up to three tasks of up to 3 ns, and all changes of one to up to 5: two tasks
    never go wrong, nor do three of which none waits for another on its own device."""
    for tasks in small(3, most=3):
        before = simulated(tasks)
        for name, ns in itertools.product(tasks, range(1, 6)):
            other = changed(tasks, name, ns)
            full = simulated(other)
            assert delta(other, before, name, requeue=True) == full
            if len(tasks) < 3 or not waits_on_its_own_device(tasks):
                assert delta(other, before, name, requeue=False) == full


@pytest.mark.parametrize(
    ("count", "cases", "timelines", "makespans"),
    [
        (10, 1000, 0.11, 0.085),
        (20, 1000, 0.25, 0.21),
        (40, 1000, 0.42, 0.36),
        (80, 300, 0.58, 0.53),
    ],
)
def test_random_graphs(count, cases, timelines, makespans):
    """Shares of wrong ones of each, and none when tasks are queued again."""
    wrong = [0, 0]
    for seed in range(cases):
        tasks, name, ns = random_change(Random(seed), count)
        before, other = simulated(tasks), changed(tasks, name, ns)
        full = simulated(other)
        assert delta(other, before, name, requeue=True) == full
        published = delta(other, before, name, requeue=False)
        wrong[0] += published != full
        wrong[1] += makespan(published) != makespan(full)
    assert [one / cases for one in wrong] == pytest.approx([timelines, makespans], abs=0.01)


def small(most_tasks: int, most: int) -> Iterator[dict[Id, Task]]:
    """Ids are in no order of the graph; devices are numbered as they come."""
    for count in range(1, most_tasks + 1):
        names = [(n,) for n in range(count)]
        pairs = list(itertools.permutations(names, 2))
        graphs = [
            edges
            for size in range(len(pairs) + 1)
            for edges in itertools.combinations(pairs, size)
            if acyclic(names, edges)
        ]
        places = [
            on
            for on in itertools.product(range(count), repeat=count)
            if list(dict.fromkeys(on)) == list(range(len(set(on))))
        ]
        times = itertools.product(range(1, most + 1), repeat=count)
        for edges, on, ns in itertools.product(graphs, places, times):
            yield {
                name: Task(on[n], ns[n], {first for first, second in edges if second == name})
                for n, name in enumerate(names)
            }


def waits_on_its_own_device(tasks: Mapping[Id, Task]) -> bool:
    def before(name: Id) -> set[Id]:
        return tasks[name].after.union(*map(before, tasks[name].after))

    return any(tasks[a].resource == tasks[b].resource for b in tasks for a in before(b))


def acyclic(names: list[Id], edges: tuple[tuple[Id, Id], ...]) -> bool:
    left = set(names)
    while free := {n for n in left if not any(b == n and a in left for a, b in edges)}:
        left -= free
    return not left


def random_change(random: Random, count: int) -> tuple[dict[Id, Task], Id, int]:
    """Tasks of 1 to 9 ns on four devices, each after up to three of the twelve before it; one of
    them comes to take 1 to 30."""
    names = [(n,) for n in range(count)]
    random.shuffle(names)
    tasks = {}
    for at, name in enumerate(names):
        near = names[max(0, at - 12) : at]
        after = {random.choice(near) for _ in range(random.choice([0, 1, 1, 2, 2, 3])) if near}
        tasks[name] = Task(random.randrange(4), random.randint(1, 9), after)
    return tasks, random.choice(names), random.randint(1, 30)
