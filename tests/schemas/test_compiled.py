"""What a profile tells of a step that PyTorch compiles."""

from __future__ import annotations

import msgspec

from dltune.base.documents import struct_faults
from dltune.schemas.pytorch_step import Compiled, Graph, Rung

RUNGS = (Rung(1.0, 60, 65, 70, 0, 0.0), Rung(0.5, 40, 50, 55, 1, 2.0))
STEP = Compiled((Graph(2, 9.0, RUNGS),), 10, 20, 15, 30, 1)


def test_its_signature_is_of_its_graphs():
    assert struct_faults("", STEP) == []
    assert STEP.peak == 30
    assert msgspec.structs.replace(STEP, live=11).signature == STEP.signature
    assert msgspec.structs.replace(STEP, graphs=()).signature != STEP.signature


def test_what_cannot_be():
    graphs = (
        Graph(0, -1.0, RUNGS[::-1]),
        Graph(1, 1.0, ()),
        Graph(1, 1.0, (Rung(2.0, -1, 0, 0, 0, 0.0),)),
    )
    assert struct_faults("", msgspec.structs.replace(STEP, graphs=graphs, live=-1)) == [
        "graphs[0].runs must be at least 1, got 0",
        "graphs[0].work must be finite and not negative, got -1.0",
        "graphs[0].rungs must be in order of decreasing budget, got [0.5, 1.0]",
        "graphs[1].rungs must not be empty",
        "graphs[2].rungs[0].budget must be between 0 and 1, got 2.0",
        "graphs[2].rungs[0].kept must be finite and not negative, got -1",
        "live must be finite and not negative, got -1",
    ]
