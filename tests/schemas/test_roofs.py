from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from roofed import roofs

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.machine import Bandwidth, Peak, Roofs, load_roofs


def test_the_highest_of_a_type_on_all_cores():
    found = roofs().peak("float64")
    assert found is not None
    assert (found.instructions, found.cores, found.rate) == ("AVX-512", 2, 256e9)
    assert roofs().peak("int8") is None


def test_the_highest_of_some_instructions_and_of_one_core():
    found = roofs().peak("float32", 1, among=("SSE2", "AVX"))
    assert found is not None
    assert (found.instructions, found.rate) == ("AVX", 128e9)
    assert roofs().peak("float32", among=()) is None


def test_a_level_is_as_fast_as_its_better_way():
    found = roofs().bandwidth("L2")
    assert found is not None
    assert (found.way, found.rate) == ("read", 500e9)
    assert roofs().bandwidth("L4") is None


def test_roofs_without_fault():
    assert struct_faults("", roofs()) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"cores": 0, "peaks": (), "bandwidths": ()}, "cores must be at least 1, got 0"),
        ({"frequency": 0.0}, "frequency must be finite and above 0, got 0.0"),
        ({"unsettled": -1}, "unsettled must be at least 0, got -1"),
        (
            {"peaks": (Peak("int8", "AMX", 1, 3, 2.0, 1.0, 1),)},
            "peaks[0].cores must be at most 2 (the number of cores), got 3",
        ),
        (
            {"peaks": (Peak("int8", "AMX", 1, 2, 1.0, 2.0, 1),)},
            "peaks[0].median must be at most 1.0 (the rate), got 2.0",
        ),
        (
            {"bandwidths": (Bandwidth("L1", "read", 0, 2, 1.0, 1.0, 1),)},
            "bandwidths[0].bytes must be at least 1, got 0",
        ),
        (
            {"bandwidths": (Bandwidth("L1", "read", 8, 2, 1.0, 1.0, 1),) * 2},
            "bandwidths must contain each case only once, got 'L1 read on 2 cores' 2 times",
        ),
    ],
)
def test_what_cannot_be_is_told(changes, fault):
    assert struct_faults("", roofs(**changes)) == [fault]


def test_a_file_is_read_whole_or_refused(tmp_path):
    path = tmp_path / "roofs.json"
    path.write_bytes(msgspec.json.encode(roofs()))
    assert load_roofs(path) == roofs()
    path.write_bytes(msgspec.json.encode(roofs(frequency=-1.0)))
    with pytest.raises(UsageError, match="frequency must be finite and above 0"):
        load_roofs(path)


def test_the_documentation_s_example_is_one():
    folder = Path(__file__).parents[2] / "scripts" / "docs" / "examples"
    example = (folder / "roofs.json").read_bytes()
    assert struct_faults("", msgspec.json.decode(example, type=Roofs)) == []
