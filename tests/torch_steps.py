"""PyTorch jobs of which one step is recorded, or gives up results: numbers, and what is told."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hooked import JOBS
from torches import TORCH_PYTHON, computes

from dltune.frameworks.pytorch import RECORDING
from dltune.job import protocol
from dltune.job.launch import Job
from dltune.schemas.pytorch_step import Calls

SCRIPT = JOBS / "torch_memory.py"
# kernels of a compiled script are then those of eager steps, so that numbers stay bit for bit
COMPILED = ("--compiled", "aot_eager_decomp_partition")


def ran(
    folder: Path, adapter: Mapping[str, Any], *arguments: object, script: Path = SCRIPT
) -> tuple[dict[str, Any], list[protocol.Message]]:
    """What the job has computed, and what its adapter told."""
    heard: list[protocol.Message] = []
    job = Job(
        [str(TORCH_PYTHON), str(script), *map(str, arguments)],
        answer=lambda _: {"adapters": [adapter]},
        folder=folder,
    )
    with job:
        for event in job.events(1.0):
            if event and isinstance(
                event.message, protocol.Called | protocol.Compiled | protocol.GivenUp
            ):
                heard.append(event.message)
    assert job.exit_code == 0
    return json.loads((folder / "found.json").read_text()), heard


def recorded(
    folder: Path, *arguments: object, script: Path = SCRIPT
) -> tuple[dict[str, Any], Calls]:
    """What the job has computed, and its recorded step."""
    computed, heard = ran(folder, RECORDING.under({}), *arguments, script=script)
    (called,) = [one for one in heard if isinstance(one, protocol.Called)]
    return computed, called.step


def compiled(folder: Path) -> tuple[dict[str, Any], protocol.Compiled]:
    """What a job computes that compiles its model, and what was recorded of that."""
    computed, heard = ran(folder, RECORDING.under({}), *COMPILED)
    (told,) = [one for one in heard if isinstance(one, protocol.Compiled)]
    return computed, told


def alone(factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """What the job computes without dltune, once for the same arguments."""

    @functools.cache
    def computed(*arguments: object) -> dict[str, Any]:
        folder = factory.mktemp("alone")
        computes(folder, SCRIPT, *arguments)
        return dict(json.loads((folder / "found.json").read_text()))

    return computed
