"""A step of unmodified PyTorch jobs is recorded, which changes none of their numbers."""

from __future__ import annotations

import pytest
from torch_steps import COMPILED, alone, compiled, ran, recorded
from torches import needs_torch, release

from dltune.base.documents import struct_faults
from dltune.frameworks.pytorch import RECORDING

pytestmark = [pytest.mark.tensorflow, needs_torch]


def test_recording_changes_no_number(tmp_path_factory):
    computed, calls = recorded(tmp_path_factory.mktemp("recorded"))
    again, found = recorded(tmp_path_factory.mktemp("again"))
    assert computed == again == alone(tmp_path_factory)()
    assert struct_faults("", found) == []
    assert found.signature == calls.signature
    assert found.counted
    phases = {call.phase for call in found.calls}
    assert phases == {"forward", "backward", "aside"}
    assert all(layer.reads for layer in found.layers)  # also what is given by its name
    assert max(found.levels) > found.live


def test_a_script_with_hooks_of_its_own_is_not_recorded(tmp_path_factory):
    computed, heard = ran(tmp_path_factory.mktemp("hooked"), RECORDING.under({}), "--hooked")
    assert computed == alone(tmp_path_factory)()
    assert heard == []


def test_what_is_compiled_is_recorded_by_budgets(tmp_path_factory):
    computed, told = compiled(tmp_path_factory.mktemp("compiled"))
    assert computed == alone(tmp_path_factory)(*COMPILED)
    assert struct_faults("", told.step) == []
    (graph,) = told.step.graphs
    first, *others = graph.rungs
    assert first.budget == 1.0
    # of older ones the partitioner keeps more
    assert min(one.kept for one in others) < first.kept * (0.5 if release() >= (2, 7) else 0.75)
    assert all(one.work > first.work for one in others)
