"""Times of operators' parts: what they may be."""

from __future__ import annotations

from pathlib import Path

import divided
import msgspec
import pytest

from dltune.base import documents
from dltune.base.documents import struct_faults
from dltune.systems.parallelism.schemas import operators
from dltune.systems.parallelism.schemas.operators import OperatorTimes, PartTime

EXAMPLE = Path(__file__).parents[4] / "scripts" / "docs" / "examples" / "operator-times.json"


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    found = documents.decode(EXAMPLE.read_bytes(), OperatorTimes, operators.TIMES_SCHEMA, "docs")
    assert [one.output for one in found.parts] == [(32, 100), (64, 50)]
    path = tmp_path / "times.json"
    path.write_bytes(msgspec.json.encode(divided.times()))
    assert operators.load_times(path) == divided.times()


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"kind": ""}, "kind must not be empty"),
        ({"cores": 0}, "cores must be at least 1"),
        ({"update": 0.0}, "update must be finite and above 0"),
        ({"parts": (PartTime("a", (), (2, 0), 1.0, 1.0),)}, "output[1] must be at least 1"),
        ({"parts": (PartTime("a", ((0,),), (2,), 1.0, 1.0),)}, "inputs[0][0] must be at least 1"),
        ({"parts": (PartTime("a", (), (2,), 0.0, 1.0),)}, "forward must be finite and above 0"),
        (
            {"parts": (PartTime("a", (), (2,), 1.0, 1.0),) * 2},
            "each type with its shapes only once",
        ),
    ],
)
def test_times_that_cannot_be(wrong: dict[str, object], fault: str) -> None:
    (told,) = struct_faults("", msgspec.structs.replace(divided.times(), **wrong))
    assert fault in told
