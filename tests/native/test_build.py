"""A library is built from its units, side by side, once."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from dltune.native.build import BuildError, compiler, library, library_path

try:
    compiler()
except BuildError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

EXPORTED = 'extern "C" __attribute__((visibility("default"))) int {name}() {{ return {value}; }}\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("DLTUNE_CACHE", str(folder))
    return folder


def units(folder: Path, values: dict[str, str]) -> list[Path]:
    """One a function, each in a folder of its own, all of one name."""
    paths = []
    for name, value in values.items():
        paths.append(folder / name / "unit.cc")
        paths[-1].parent.mkdir()
        paths[-1].write_text(EXPORTED.format(name=name, value=value))
    return paths


def test_all_units_are_in_the_library(tmp_path: Path, cache: Path) -> None:
    sources = units(tmp_path, {f"f{at}": str(at) for at in range(7)})
    (cache / f"{library_path('example', sources, []).stem}.killed.building").mkdir(parents=True)
    built: list[None] = []
    for _ in range(2):
        path = library("example", sources, on_build=lambda: built.append(None))
    assert len(built) == 1
    loaded = ctypes.CDLL(str(path))
    assert [getattr(loaded, f"f{at}")() for at in range(7)] == list(range(7))
    assert sorted(cache.iterdir()) == [path.with_suffix(".lock"), path]


def test_a_unit_that_does_not_compile_is_told_and_nothing_is_left(
    tmp_path: Path, cache: Path
) -> None:
    sources = units(tmp_path, {"good": "1", "bad": "nothing_of_that_name", "fine": "2"})
    with pytest.raises(
        BuildError, match=r"(?s)failed with exit code 1.*nothing_of_that_name.*the whole log"
    ):
        library("example", sources)
    lock, log = sorted(cache.iterdir(), key=lambda path: path.suffix == ".log")
    assert (lock.suffix, log.suffix) == (".lock", ".log")
    assert f"-c -o {cache}" in log.read_text().splitlines()[0]
    assert str(sources[1]) in log.read_text()
