"""The list of PyTorch programs: each can be started."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROGRAMS = Path(__file__).parents[3] / "scripts" / "bench" / "programs"


def test_each_program_has_its_files() -> None:
    programs = tomllib.loads((PROGRAMS / "programs.toml").read_text())["program"]
    assert len({program["name"] for program in programs}) == len(programs)
    files = {"programs.toml", "told_threads.py"}
    for program in programs:
        assert program["packages"]
        files |= {part for part in program["command"] if part.endswith(".py")}
        files |= {program["data"]} if "data" in program else set()
    assert files == {path.name for path in PROGRAMS.iterdir() if path.is_file()}
