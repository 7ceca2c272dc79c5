"""Steps with further blocks, against the same networks made so deep."""

from __future__ import annotations

import msgspec
import synthetic
from block_steps import HERE, Network
from hypothesis import given
from hypothesis import strategies as st

from dltune.schemas.profile import Op, Step
from dltune.simulate.step_graph import peak
from dltune.systems.memory.deepest import Deeper
from dltune.systems.memory.model.profiled_step import measured
from dltune.systems.memory.model.repeated_blocks import find_repeats
from dltune.systems.memory.model.schedule import Step as Run
from dltune.systems.memory.model.schedule import lives


def needed(step: Step) -> int:
    found = measured(step)
    order = [Run(node) for node in found.order]
    return peak(lives(found.graph, order, found.written, found.forwarded))[0]


@given(
    blocks=st.integers(3, 5),
    copies=st.integers(0, 4),
    ops=st.integers(2, 4),
    skip=st.booleans(),
    swapped=st.none() | st.integers(0, 9),
)
def test_further_blocks_are_as_if_the_network_had_them(blocks, copies, ops, skip, swapped):
    profile = Network(blocks, ops, skip, swapped).profile
    (step,) = profile.steps
    repeat = find_repeats(step, profile.ops)
    assert repeat is not None
    deeper = Deeper(step, repeat)
    found = deeper.of(copies)
    (direct,) = Network(blocks + copies, ops, skip, swapped).profile.steps
    assert sorted(node.type for node in found.nodes) == sorted(node.type for node in direct.nodes)
    assert sum(measured(found).seconds) == sum(measured(direct).seconds)
    assert [found.nodes[at].type for at in measured(found).order] == [
        direct.nodes[at].type for at in measured(direct).order
    ]
    assert needed(found) == needed(direct)
    assert repeat.blocks == blocks
    # values of variables and handles
    assert deeper.parameters == sum(100 + op + 8 for op in range(ops))


def test_blocks_that_grow_are_not_repeated():
    profile = Network(4, 3, True, None, grows=8).profile
    assert find_repeats(profile.steps[0], profile.ops) is None


def test_towers_side_by_side_are_not_repeated():
    nodes = [synthetic.node("IteratorGetNext_in", 0)]
    for tower in range(4):
        nodes.append(synthetic.node(f"Conv_{tower}", 1, [0]))
        nodes.append(synthetic.node(f"Relu_{tower}", 2, [len(nodes) - 1]))
    nodes.append(synthetic.node("Concat_all", 3, [2, 4, 6, 8]))
    nodes = [
        msgspec.structs.replace(node, start=float(at), end=at + 1.0)
        for at, node in enumerate(nodes)
    ]
    kinds = ("IteratorGetNext", "Conv", "Relu", "Concat")
    ops = [Op(kind, kind, (), 1, 0, 1.0, ()) for kind in kinds]
    assert find_repeats(synthetic.profile(HERE, ops, {"train": nodes}).steps[0], ops) is None
