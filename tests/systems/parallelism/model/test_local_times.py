"""Costs of operators' parts, each measured once."""

from __future__ import annotations

import divided

from dltune.base.documents import struct_faults
from dltune.systems.parallelism.inputs import measured_costs, requests
from dltune.systems.parallelism.jax.operator_times import Request
from dltune.systems.parallelism.model.problem import part, problem, soap
from dltune.systems.parallelism.networks import lenet
from dltune.systems.parallelism.schemas.operators import TIMES_SCHEMA, OperatorTimes, PartTime


def times(*wanted: Request) -> OperatorTimes:
    """That take as many ms as their place in the list, and backwards twice as many."""
    parts = tuple(
        PartTime(one.type, one.inputs, one.output, n * 1e-3, n * 2e-3, one.data)
        for n, one in enumerate(wanted, 1)
    )
    found = OperatorTimes(TIMES_SCHEMA, "fast", 2, 1, "JAX 1", 1e-9, parts)
    assert struct_faults("", found) == []
    return found


def test_each_part_has_its_own_time() -> None:
    graph, cluster = lenet(8), divided.cluster()
    wanted = requests(graph, 4, soap)
    assert len(wanted) == len(set(wanted))
    costs = measured_costs(graph, times(*wanted))
    posed = problem(graph, cluster, soap, costs, costs.update)
    seen = set()
    for operator, catalog, forward, backward in zip(
        graph.operators, posed.catalogs, posed.forward, posed.backward, strict=True
    ):
        for one, there, back in zip(catalog, forward[:, 0], backward[:, 0], strict=True):
            largest = part(graph, operator, one.degrees)
            if not operator.inputs:
                assert there == back == 1  # the step's data are there
                continue
            data = not graph.operators[operator.inputs[0].operator].gradient
            place = wanted.index(Request(operator.type, largest.inputs, largest.output, data))
            assert (there, back) == ((place + 1) * 10**6, (place + 1) * 2 * 10**6)
            seen.add(place)
    assert seen == set(range(len(wanted)))


def test_parts_that_are_alike_are_one() -> None:
    """Steps of one layer, and devices that compute the same."""
    short, long = (requests(divided.network(steps), 4, soap) for steps in (3, 9))
    assert short == long
