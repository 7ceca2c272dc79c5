"""A native part as Python calls it: built at first use, loaded, its functions declared."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dltune.base.errors import DltuneError
from dltune.native.build import BuildError, library


def bound(
    name: str,
    sources: Sequence[Path],
    what: str,
    functions: Mapping[str, tuple[Any, ...]],
    *structs: type[ctypes.Structure],
    flags: Sequence[str] = (),
    remedy: str = "install a C++17 compiler, such as g++, or set CXX",
) -> ctypes.CDLL:
    """The library `name` of these sources, which with `structs` include native/mirrored.h.

    `what` it is, for a person. `functions`: by its name each one's result, then its arguments.
    Raises DltuneError, with the compiler's last lines, when it cannot be built, and when a struct
    is not laid out as in C++.
    """
    # any change of a header in this folder builds it anew, as of those beside the sources
    shared = [Path(__file__).with_name("mirrored.h")] if structs else []
    try:
        native = ctypes.CDLL(str(library(name, [*sources, *shared], flags)))
    except BuildError as error:
        raise DltuneError(f"{what} could not be built: {error}", remedy=remedy) from None
    require_sizes(native, *structs)
    for function, (result, *arguments) in functions.items():
        declared = getattr(native, function)
        declared.restype, declared.argtypes = result, arguments
    return native


def require_sizes(native: ctypes.CDLL, *structs: type[ctypes.Structure]) -> None:
    """Raises DltuneError unless each struct is as large here as in the library, which tells
    (`DLTUNE_MIRRORED` with the struct's name)."""
    for struct in structs:
        there = getattr(native, f"dltune_sizeof_{struct.__name__}")()
        if there != ctypes.sizeof(struct):
            raise DltuneError(
                f"{struct.__name__} has {there} bytes in {native._name} and "
                f"{ctypes.sizeof(struct)} in Python",
                remedy=(
                    "empty dltune's cache folder; if that does not help, report this as a defect "
                    "of dltune, with the compiler's version"
                ),
            )
