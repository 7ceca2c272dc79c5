"""Structs of native code as ctypes lays them out, which must be as large as the compiler's."""

from __future__ import annotations

import ctypes

from dltune.errors import DltuneError


def require_sizes(library: ctypes.CDLL, *structs: type[ctypes.Structure]) -> None:
    """Raises DltuneError unless each struct is as large here as in the library, which tells
    (`DLTUNE_MIRRORED` with the struct's name)."""
    for struct in structs:
        there = getattr(library, f"dltune_sizeof_{struct.__name__}")()
        if there != ctypes.sizeof(struct):
            raise DltuneError(
                f"{struct.__name__} has {there} bytes in {library._name} and "
                f"{ctypes.sizeof(struct)} in Python",
                remedy="empty dltune's cache folder; if that does not help, it is a defect of "
                "dltune: tell its authors which compiler this is",
            )
