"""Undocumented parts of PyTorch that dltune relies on, which a new release can change."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hooked import JOBS
from torches import TORCH_PYTHON, needs_torch

from dltune.frameworks.pytorch import INJECTED
from dltune.job.launch import Job
from dltune.job.protocol import Orders

pytestmark = [pytest.mark.tensorflow, needs_torch]

PASSES = """
import contextlib, sys, torch

sys.path.insert(0, sys.argv[1])
from _dltune_torch_passes import MODES, PLUGIN, around_passes

begun = []

def act(name):
    def around(run, roots, *arguments, **options):
        begun.append(name)
        assert torch._C._current_graph_task_id() == -1
        return run(roots, *arguments, **options)
    return around

def differentiate():
    values = torch.ones(3, requires_grad=True)
    (values * 2).sum().backward()
    torch.autograd.backward((values * 2).sum())
    torch.autograd.grad((values * 2).sum(), values)
    assert values.grad.tolist() == [4.0] * 3

plain = torch.autograd._engine_run_backward
assert torch.autograd.graph._engine_run_backward is plain
ends = [around_passes(torch, PLUGIN, act("plugin")), around_passes(torch, MODES, act("modes"))]
differentiate()
patched = getattr(torch.compiler, "_patch_engine_backward", contextlib.nullcontext)
with patched():
    pass
differentiate()
assert begun == ["modes", "plugin"] * 6, begun
for end in ends:
    end()
differentiate()
assert len(begun) == 12, begun
"""


def test_all_backward_passes_go_through_one_function() -> None:
    subprocess.run([TORCH_PYTHON, "-c", PASSES, INJECTED], check=True, timeout=120)


def test_calls_within_an_op_are_not_observed_except_by_the_scripts_own_profiler(
    tmp_path: Path,
) -> None:
    """In both passes, in which the plugin has other numbers of callbacks."""
    file, steps, profiled = tmp_path / "found.json", 40, 30
    with Job(
        [str(TORCH_PYTHON), str(JOBS / "torch_observed.py"), str(file), f"--profiled={profiled}"],
        greet=lambda _: Orders(1, discover=True).lines(),
    ) as job:
        for _ in job.events(0.2):
            pass
    assert job.exit_code == 0
    found = json.loads(file.read_text())
    assert found[0] == found[profiled] == {"forward": True, "backward": True}
    assert [one for step, one in enumerate(found[4:], 4) if step != profiled] == [
        {"forward": False, "backward": False}
    ] * (steps - 5)
