"""Structs of two languages."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import dltune.native
from dltune.base.errors import DltuneError
from dltune.native.binding import require_sizes
from dltune.native.build import library


class Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int32), ("second", ctypes.c_double))


class Triple(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int32), ("second", ctypes.c_double))


def test_a_struct_that_has_grown_on_one_side_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLTUNE_CACHE", str(tmp_path))
    source = tmp_path / "structs.cc"
    source.write_text(
        '#include "mirrored.h"\n'
        "struct Pair { int first; double second; };\n"
        "struct Triple { int first; double second, third; };\n"
        "DLTUNE_MIRRORED(Pair, Pair)\nDLTUNE_MIRRORED(Triple, Triple)\n"
    )
    folder = Path(dltune.native.__file__).parent
    made = ctypes.CDLL(str(library("structs", [source], [f"-I{folder}"])))
    require_sizes(made, Pair)
    with pytest.raises(DltuneError, match=r"Triple has 24 bytes in .*structs.* and 16 in Python"):
        require_sizes(made, Pair, Triple)
