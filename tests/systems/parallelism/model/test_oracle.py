"""The slow oracle, on what can be worked out by hand."""

from __future__ import annotations

import itertools
from fractions import Fraction

from hypothesis import given, settings
from parallelism_cases import cases, random_case
from parallelism_oracle import (
    BACKWARD,
    BETWEEN_HOSTS,
    FORWARD,
    IN_HOSTS,
    UPDATE,
    Choice,
    Devices,
    Divided,
    makespan,
    meetings,
    simulated,
    tasks,
    transferred,
    weight_sets,
)

from dltune.base.documents import struct_faults
from dltune.systems.parallelism.model.problem import REPLICA, Configuration
from dltune.systems.parallelism.schemas import operators
from dltune.systems.parallelism.schemas.operators import (
    Dimension,
    Input,
    Operator,
    Operators,
    Region,
    Weights,
)

SAME = Region(extent=1, of=0)


def operator(name: str, *sizes: tuple[int, str], **fields: object) -> Operator:
    dimensions = tuple(Dimension(f"d{n}", size, kind) for n, (size, kind) in enumerate(sizes))
    return Operator(name, "Any", dimensions, flops=1.0, backward_flops=1.0, **fields)


def graph(*every: Operator, weights: int | None = None) -> Operators:
    learned = () if weights is None else (Weights("w", weights),)
    made = Operators(operators.SCHEMA, "small", every, learned)
    assert struct_faults("", made) == []
    return made


def devices(count: int, hosts: list[int] | None = None, update: float = 0.0, **on) -> Devices:
    """Each pair with a channel of its own, which takes 1 ns and 1 ns a byte."""
    every = range(count)
    tables = {
        "channel": [[count + a * count + b for b in every] for a in every],
        "latency": [[1] * count for _ in every],
        "ns_per_byte": [[1.0] * count for _ in every],
    }
    tables |= on
    return Devices([0] * count, hosts or [0] * count, update_ns_per_byte=update, **tables)


def divided(first: int = 1, second: int = 1, replicas: int = 1, start: int = 0, ns=(1, 1)):
    order = (0, 1, 2, 3, REPLICA)
    configuration = Configuration((first, second, 1, 1), replicas, start, order)
    return Choice(configuration, (ns[0],), (ns[1],))


def spans(times) -> dict[tuple[int, ...], tuple[int, int]]:
    return {name: (one.start, one.end) for name, one in times.items()}


def recurrent() -> Operators:
    """The paper's Fig. 5: three layers over two steps; here of one number each, a byte."""
    e1, e2 = (operator(f"embedding{n}", (1, "sample"), element=1, weights=0) for n in (1, 2))
    r1 = operator("recurrent1", (1, "sample"), inputs=(Input(0, (SAME,)),), element=1)
    r2 = operator(
        "recurrent2",
        (1, "sample"),
        inputs=(Input(1, (SAME,)), Input(2, (SAME,))),
        element=1,
    )
    l1 = operator("linear1", (1, "sample"), inputs=(Input(2, (SAME,)),), element=1)
    l2 = operator("linear2", (1, "sample"), inputs=(Input(3, (SAME,)),), element=1)
    return graph(e1, e2, r1, r2, l1, l2, weights=4)


LAYERS = [
    *[divided(start=0, ns=(2, 1))] * 2,
    *[divided(start=1, ns=(3, 2))] * 2,
    *[divided(start=2, ns=(4, 3))] * 2,
]


def test_a_layer_on_each_of_three_devices():
    times = spans(simulated(tasks(recurrent(), LAYERS, devices(3, update=0.5))))
    # edges: 0 from embedding to recurrent layer in the first step, 1 in the second, 2 from step to
    # step, on one device, 3 and 4 on to the linear layer
    assert times == {
        (0, 0, FORWARD, 0): (0, 2),
        (0, 1, FORWARD, 0): (2, 4),
        (1, 0, FORWARD, 0, 0): (2, 4),
        (0, 2, FORWARD, 0): (4, 7),
        (1, 1, FORWARD, 0, 0): (4, 6),
        (0, 3, FORWARD, 0): (7, 10),
        (1, 3, FORWARD, 0, 0): (7, 9),
        (0, 4, FORWARD, 0): (9, 13),
        (1, 4, FORWARD, 0, 0): (10, 12),
        # ready at 12, before the first gradient at 13
        (0, 5, FORWARD, 0): (13, 17),
        (0, 4, BACKWARD, 0): (17, 20),
        (0, 5, BACKWARD, 0): (20, 23),
        (1, 3, BACKWARD, 0, 0): (20, 22),
        (1, 4, BACKWARD, 0, 0): (23, 25),
        (0, 3, BACKWARD, 0): (25, 27),
        # the first step waits for the second
        (0, 2, BACKWARD, 0): (27, 29),
        (1, 1, BACKWARD, 0, 0): (27, 29),
        (0, 1, BACKWARD, 0): (29, 30),
        (1, 0, BACKWARD, 0, 0): (29, 31),
        (0, 0, BACKWARD, 0): (31, 32),
        (2, 0, 0, UPDATE, 0): (32, 34),
    }


def test_one_operator_moved():
    # the second linear step beside the recurrent layer: without transfers, and neither of the two
    # linear steps waits for the other
    moved = [*LAYERS[:5], divided(start=1, ns=(4, 3))]
    made = tasks(recurrent(), moved, devices(3))
    assert not any(name[:2] == (1, 4) for name in made)
    times = spans(simulated(made))
    assert times[0, 5, FORWARD, 0] == (10, 14)
    assert times[0, 4, BACKWARD, 0] == (13, 16)
    assert times[0, 5, BACKWARD, 0] == (14, 17)
    assert times[0, 3, BACKWARD, 0] == (17, 19)
    assert times[0, 2, BACKWARD, 0] == (19, 21)
    assert makespan(simulated(made)) == 24


def test_transfers_in_the_place_of_what_a_device_does():
    # the sender's own second task is ready as soon as the transfer of 1 + 8 ns, and goes first
    first = operator("first", (2, "sample"), element=8, gradient=False)
    other = operator("other", (1, "sample"), inputs=(Input(0, (SAME,)),))
    two = graph(first, other)
    busy = devices(2, channel=[[0, 0], [1, 1]])
    times = spans(simulated(tasks(two, [divided(ns=(5, 2)), divided(start=1)], busy)))
    assert times[0, 0, FORWARD, 0] == (0, 5)
    assert times[0, 0, BACKWARD, 0] == (5, 7)
    assert times[1, 0, FORWARD, 0, 0] == (7, 16)
    assert times[0, 1, FORWARD, 0] == (16, 17)


def edge(given: Operator, reader: Operator, first: Choice, second: Choice, count: int = 8):
    """Of how many positions (part, part that reads) have in common."""
    meet = meetings(
        Divided(given, first.configuration, count),
        Divided(reader, second.configuration, count),
        reader.inputs[0].regions,
    )
    return {(give, take): volume for give, take, volume in meet}


def test_a_convolutions_halo():
    # 9 positions under windows of 3 in strides of 2, over the edge by one on either side
    picture = operator("picture", (4, "sample"), (9, "attribute"))
    window = Region(extent=3, of=1, stride=2, start=-1)
    reader = operator(
        "convolution", (4, "sample"), (5, "attribute"), inputs=(Input(0, (SAME, window)),)
    )
    # the picture's parts are 0 to 3 and 4 to 8; the reader's read 0 to 3 and 3 to 8
    assert edge(picture, reader, divided(1, 2), divided(1, 2)) == {
        (0, 0): 4 * 4,
        (0, 1): 4 * 1,
        (1, 1): 4 * 5,
    }
    # each half of the samples from the half that has it
    halves = edge(picture, reader, divided(2, 1), divided(2, 1))
    assert halves == {(0, 0): 18, (1, 1): 18}


def test_strides_beyond_the_extent_carry_what_lies_between():
    row = operator("row", (9, "sample"))
    sparse = Region(extent=1, of=0, stride=4)
    reader = operator("reader", (3, "sample"), inputs=(Input(0, (sparse,)),))
    assert edge(row, reader, divided(), divided()) == {(0, 0): 9}
    assert edge(row, reader, divided(), divided(3)) == {(0, 0): 1, (0, 1): 1, (0, 2): 1}


def test_a_concatenation_reads_nothing_of_it_elsewhere():
    row = operator("row", (3, "sample"))
    after = Region(extent=1, of=0, start=-5)
    reader = operator("concatenation", (8, "sample"), inputs=(Input(0, (after,)),))
    # its parts: 0 to 3 and 4 to 7; the row is its positions 5 to 7
    assert edge(row, reader, divided(), divided(2)) == {(0, 1): 3}
    beyond = operator("beyond", (8, "sample"), inputs=(Input(0, (Region(2, start=3),)),))
    assert edge(row, beyond, divided(), divided(2)) == {}


def test_replicas_take_the_copy_at_hand_or_share_the_copies():
    first = operator("first", (2, "sample"), element=1)
    second = operator("second", (2, "sample"), inputs=(Input(0, (SAME,)),))
    # two copies, on devices 0 and 1, to four on 1, 2, 3 and 4
    made = tasks(
        graph(first, second), [divided(replicas=2), divided(replicas=4, start=1)], devices(8)
    )
    assert made[0, 1, FORWARD, 0].after == {(0, 0, FORWARD, 1)}
    assert made[1, 0, FORWARD, 1, 0].after == {(0, 0, FORWARD, 1)}
    assert made[1, 0, FORWARD, 2, 0].after == {(0, 0, FORWARD, 0)}
    assert made[1, 0, FORWARD, 3, 0].after == {(0, 0, FORWARD, 1)}
    assert made[0, 1, FORWARD, 2].after == {(1, 0, FORWARD, 2, 0)}
    # the gradients come back from as many as there are copies
    assert made[1, 0, BACKWARD, 0, 0].after == {(0, 1, BACKWARD, 0)}
    assert made[0, 0, BACKWARD, 0].after == {(0, 0, FORWARD, 0), (1, 0, BACKWARD, 0, 0)}
    assert made[0, 0, BACKWARD, 1].after == {(0, 0, FORWARD, 1), (0, 1, BACKWARD, 0)}
    assert sum(name[0] == 1 for name in made) == 4
    assert transferred(made) == 4 * 2


def test_no_gradient_to_data():
    data = operator("data", (2, "sample"), gradient=False)
    reader = operator("reader", (2, "sample"), inputs=(Input(0, (SAME,)),))
    made = tasks(graph(data, reader), [divided(), divided(start=1)], devices(2))
    assert [name for name in made if name[0] == 1] == [(1, 0, FORWARD, 0, 0)]
    assert made[0, 0, BACKWARD, 0].after == {(0, 0, FORWARD, 0)}


def shares(*group: tuple[Operator, Choice], bytes: int = 12, count: int = 8):
    every = [Divided(one, choice.configuration, count) for one, choice in group]
    return weight_sets(bytes, every)


def test_who_holds_which_weights():
    layer = operator("layer", (8, "sample"), (8, "parameter"), weights=0)
    plain = operator("plain", (8, "sample"), weights=0)
    # divided by samples all hold all; by parameters each its own
    assert shares((layer, divided(4, 1))) == [([0, 1, 2, 3], 12)]
    assert shares((layer, divided(1, 4))) == [([n], 3) for n in range(4)]
    assert shares((layer, divided(2, 2))) == [([0, 2], 6), ([1, 3], 6)]
    # halves and thirds: sixths, and the middle two of them are held by the same
    two_and_three = shares((layer, divided(1, 2)), (layer, divided(1, 3, start=4)))
    assert two_and_three == [([0, 4], 4), ([0, 5], 2), ([1, 5], 2), ([1, 6], 4)]
    # one that is not divided holds all of it
    assert shares((layer, divided(1, 2)), (plain, divided(start=1))) == [([0, 1], 6), ([1], 6)]


def test_replicas_of_a_group_divided_alike_hold_by_themselves():
    layer = operator("layer", (8, "sample"), (8, "parameter"), weights=0)
    other = operator("other", (8, "sample"), (8, "parameter"), weights=0)
    alike = divided(1, 2, replicas=2)  # parts on devices 0 and 1, and on 2 and 3
    wanted = [([0], 6), ([1], 6), ([2], 6), ([3], 6)]
    assert shares((layer, alike)) == wanted
    assert shares((layer, alike), (other, alike)) == wanted
    unlike = divided(1, 2, replicas=2, start=4)
    assert shares((layer, alike), (other, unlike)) == [([0, 1, 4, 5], 6), ([2, 3, 6, 7], 6)]


def test_rings_in_hosts_then_between_them():
    layer = operator("layer", (4, "sample"), weights=0)
    hosts = devices(4, hosts=[0, 0, 0, 1], update=0.25)
    made = tasks(graph(layer, weights=12), [divided(4, ns=(1, 1))], hosts)
    of_weights = {name[3:]: task for name, task in made.items() if name[0] == 2}
    assert of_weights.keys() == {
        *((IN_HOSTS, n) for n in (0, 1, 2)),
        (BETWEEN_HOSTS, 0),
        (BETWEEN_HOSTS, 3),
        *((UPDATE, n) for n in range(4)),
    }
    # 2 * 2 steps of a third of the 12 bytes; then 2 * 1 of half of them
    times = spans(simulated(made))
    assert {times[2, 0, 0, IN_HOSTS, n] for n in (0, 1, 2)} == {(2, 2 + 4 * (1 + 4))}
    assert {times[2, 0, 0, BETWEEN_HOSTS, n] for n in (0, 3)} == {(22, 22 + 2 * (1 + 6))}
    assert {times[2, 0, 0, UPDATE, n] for n in range(4)} == {(36, 39)}
    assert of_weights[IN_HOSTS, 2].resource == hosts.channel[2][0]
    assert of_weights[BETWEEN_HOSTS, 0].resource == hosts.channel[0][3]
    assert of_weights[BETWEEN_HOSTS, 0].after == {
        *((2, 0, 0, IN_HOSTS, n) for n in (0, 1, 2)),
        (0, 0, BACKWARD, 3),
    }
    # each host's ring waits for what runs there alone
    assert of_weights[IN_HOSTS, 1].after == {(0, 0, BACKWARD, n) for n in (0, 1, 2)}
    assert transferred(made) == 3 * 4 * 4 + 2 * 2 * 6


def test_a_task_takes_a_ns_at_least_and_its_time_is_rounded_down():
    one = operator("one", (3, "sample"), element=1)
    two = operator("two", (3, "sample"), inputs=(Input(0, (SAME,)),), element=1)
    for rate, ns in ((0.0, 1), (0.25, 1), (0.75, 2)):
        none = devices(2, latency=[[0] * 2] * 2, ns_per_byte=[[rate] * 2] * 2)
        made = tasks(graph(one, two), [divided(), divided(start=1)], none)
        assert made[1, 0, FORWARD, 0, 0].ns == ns
    # a ring's steps are rounded before they are counted: 2 * 2 of 5 / 3 bytes
    learned = operator("learned", (3, "sample"), weights=0)
    still = devices(3, latency=[[0] * 3] * 3)
    made = tasks(graph(learned, weights=5), [divided(3)], still)
    assert made[2, 0, 0, IN_HOSTS, 0].ns == 4 * 1
    assert made[2, 0, 0, IN_HOSTS, 0].bytes == 4 * Fraction(5, 3)


@given(cases())
@settings(max_examples=60)
def test_the_one_timeline_that_there_can_be(case):
    """What Algorithm 1 promises, said of the result."""
    for strategy in case.strategies():
        made = tasks(case.graph, case.chosen(strategy), case.devices)
        times = simulated(made)
        assert times.keys() == made.keys()
        idle_from = dict.fromkeys((one.resource for one in made.values()), 0)
        for name in sorted(made, key=lambda one: (times[one].ready, one)):
            ready = max((times[one].end for one in made[name].after), default=0)
            start = max(ready, idle_from[made[name].resource])
            assert times[name] == (ready, start, start + made[name].ns)
            idle_from[made[name].resource] = times[name].end
        assert makespan(times) == max(idle_from.values())


@given(cases())
@settings(max_examples=60)
def test_volumes_and_shares_by_other_ways_to_count(case):
    own = [
        Divided(one, choice.configuration, len(case.devices.kinds))
        for one, choice in zip(case.graph.operators, case.chosen(case.strategy), strict=True)
    ]
    for reader in own:
        for read in reader.operator.inputs:
            given = own[read.operator]
            sizes = [dimension.size for dimension in given.operator.dimensions]
            volumes = {(j, i): v for j, i, v in meetings(given, reader, read.regions)}
            for i, j in itertools.product(range(len(reader.places)), range(len(given.places))):
                wanted = set(itertools.product(*reader.read(i, read.regions, sizes)))
                both = wanted & set(itertools.product(*given.positions(j)))
                assert volumes.get((j, i), 0) == len(both)
    for group, learned in enumerate(case.graph.weights):
        sharing = [one for one in own if one.operator.weights == group]
        if sharing:
            sets = weight_sets(learned.bytes, sharing)
            assert all(members == sorted(set(members)) for members, _ in sets)
            assert {device for members, _ in sets for device in members} == {
                device for one in sharing for device in one.on
            }
            # each replica's are all of the weights
            copies = sharing[0].replicas if len({one.configuration for one in sharing}) == 1 else 1
            assert sum(bytes for _, bytes in sets) == copies * learned.bytes


def test_cases_have_all_that_can_be():
    """Two hundred of them; a seed is always the same case."""
    every = [random_case(seed) for seed in range(200)]
    assert every[:5] == [random_case(seed) for seed in range(5)]
    assert all(struct_faults("", case.graph) == [] for case in every)
    assert {len(case.devices.kinds) for case in every} == {1, 2, 3, 4, 6, 8}
    made = [tasks(case.graph, case.chosen(case.strategy), case.devices) for case in every]
    stages = {name[3] for each in made for name in each if name[0] == 2}
    assert stages == {IN_HOSTS, BETWEEN_HOSTS, UPDATE}
    assert sum(any(name[0] == 1 for name in each) for each in made) > 100
    # doubles are exact
    assert all(task.bytes.denominator == 1 for each in made for task in each.values())
    assert max(len(each) for each in made) > 200
