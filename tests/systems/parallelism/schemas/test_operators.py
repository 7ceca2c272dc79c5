"""Networks as operators: what they may be."""

from __future__ import annotations

from pathlib import Path

import divided
import msgspec
import pytest

from dltune.base import documents
from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.systems.parallelism.schemas import operators
from dltune.systems.parallelism.schemas.operators import (
    Dimension,
    Input,
    Operators,
    Region,
    Weights,
)

NETWORK = divided.network()
DATA, FIRST, *_ = NETWORK.operators
EXAMPLE = Path(__file__).parents[4] / "scripts" / "docs" / "examples" / "operators.json"


def with_first(**changed: object) -> Operators:
    one = msgspec.structs.replace(FIRST, **changed)
    return msgspec.structs.replace(NETWORK, operators=(DATA, one))


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    found = documents.decode(EXAMPLE.read_bytes(), Operators, operators.SCHEMA, "docs")
    assert [one.parameter for one in found.operators] == [None, 1]
    path = tmp_path / "network.json"
    path.write_bytes(msgspec.json.encode(NETWORK))
    assert operators.load(path) == NETWORK


@pytest.mark.parametrize(
    ("graph", "told"),
    [
        (msgspec.structs.replace(NETWORK, operators=()), "operators must not be empty"),
        (
            msgspec.structs.replace(NETWORK, operators=(DATA, DATA)),
            "operators must contain each name only once, got 'data' 2 times",
        ),
        (
            msgspec.structs.replace(NETWORK, weights=(Weights("w", 0), Weights("v", 1))),
            "weights[0] (w).bytes must be at least 1, got 0",
        ),
        (with_first(flops=-1.0), "operators[1] (step0).flops must be finite and not negative"),
        (with_first(type=" "), "operators[1] (step0).type must not be empty"),
        (with_first(element=0), ".element must be at least 1, got 0"),
        (with_first(weights=2), ".weights must be at least 0 and below 2"),
        (with_first(dimensions=()), ".dimensions must be 1 to 4"),
        (
            with_first(dimensions=(Dimension("a", 0, "sample"),)),
            ".dimensions[0] (a).size must be at least 1, got 0",
        ),
        (
            with_first(dimensions=(Dimension("a", 2, "parameter"), Dimension("b", 2, "parameter"))),
            ".dimensions must have at most one of kind 'parameter'",
        ),
        (with_first(inputs=(Input(1, ()),)), ".inputs[0].operator must be at least 0 and below 1"),
        (
            with_first(inputs=(Input(0, (Region(1),)),)),
            ".inputs[0].regions must have length 2 (one for each dimension), got 1",
        ),
        (
            with_first(inputs=(Input(0, (Region(1, of=2), Region(1))),)),
            ".regions[0].of must be at least 0 and below 2",
        ),
        (
            with_first(inputs=(Input(0, (Region(1, of=0), Region(0))),)),
            ".regions[1].extent must be at least 1, got 0",
        ),
    ],
)
def test_what_cannot_be(graph: Operators, told: str) -> None:
    found = struct_faults("", graph)
    assert any(told in one for one in found), found


def test_all_faults_of_a_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    path.write_bytes(msgspec.json.encode(with_first(element=0, flops=-1.0)))
    with pytest.raises(UsageError, match=r"(?s)flops must.*element must"):
        operators.load(path)
