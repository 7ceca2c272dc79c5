"""Measured step times in pyperf's file format, so that its tools show and compare them.

One benchmark per setting, one run per turn (one process), one value per step in seconds. Read with
`python -m pyperf show FILE`, compare two files with `python -m pyperf compare_to A B`.
"""

from __future__ import annotations

import importlib.util
import io
import shlex
from collections.abc import Mapping, Sequence

from dltune import __version__
from dltune.base.errors import UsageError


def require_pyperf() -> None:
    """Raises UsageError when pyperf is not installed: call it before anything is measured."""
    if importlib.util.find_spec("pyperf") is None:
        raise UsageError(
            "--pyperf needs the package pyperf, which is not installed",
            remedy="pip install 'dltune[bench]', or leave out --pyperf",
        )


def encode(
    settings: Mapping[str, Sequence[Sequence[float]]],
    *,
    cpu_model: str,
    cores: int,
    command: Sequence[str],
    framework: str = "none",
    plan: str = "none",
) -> bytes:
    """The bytes of a pyperf suite.

    `settings`: setting -> turns -> the seconds of each step, at least one setting with at least one
    step each. Turns without a step are left out. `cores`: those allowed when they were measured;
    `plan`: the plan file's name.

    Raises UsageError when pyperf is not installed, ValueError when a setting has no step or a time
    is not positive.
    """
    require_pyperf()
    import pyperf  # type: ignore[import-untyped]

    metadata = {
        "cpu_model_name": cpu_model,
        "cpu_count": cores,
        "command": shlex.join(command),
        "plan": plan,
        "framework": framework,
        "dltune_version": __version__,
        "unit": "second",
        "loops": 1,
    }
    benchmarks = []
    for setting, turns in settings.items():
        # pyperf would describe this process; the times are the job's
        runs = [
            pyperf.Run(tuple(turn), metadata={**metadata, "name": setting}, collect_metadata=False)
            for turn in turns
            if turn
        ]
        if not runs:
            raise ValueError(f"setting {setting!r} has no step")
        benchmarks.append(pyperf.Benchmark(runs))
    file = io.StringIO()
    pyperf.BenchmarkSuite(benchmarks).dump(file)
    return file.getvalue().encode()
