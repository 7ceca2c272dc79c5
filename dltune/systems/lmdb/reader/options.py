"""Options of reading records: the optimisations of LMDBIO that can be chosen."""

from __future__ import annotations

from dataclasses import dataclass

from dltune.base.errors import UsageError

PAGE = 4096  # bytes; what direct I/O must be aligned to at most


@dataclass(frozen=True)
class Options:
    """Options of one reader. Sizes are bytes.

    node      one process of a node reads for all its ranks, over shared memory (LMM); otherwise
              each rank reads for itself
    direct    past the page cache, with O_DIRECT (DIO). Records read again in the next epoch come
              from storage again: for databases larger than the memory, and file systems whose
              page cache is slow
    memory    of all slots; iterations are read ahead until they fill it (COAL)
    block     of one request, at most; records that are next to each other are read at once (COAL)
    gap       between two records that is read along rather than skipped (COAL)
    parallel  requests in flight of one reader
    stagger   readers that can read at the same time, each holding a token; None: all (STAG)

    Raises UsageError for values that cannot be.
    """

    node: bool = True
    direct: bool = False
    memory: int = 128 << 20
    block: int = 16 << 20
    gap: int = 64 << 10
    parallel: int = 16
    stagger: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("memory", 4 * PAGE), ("block", PAGE), ("gap", 0), ("parallel", 1)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"{name} must be at least {least}, got {getattr(self, name)}", remedy=None
                )
        if self.block % PAGE:
            raise UsageError(f"block must be a multiple of {PAGE}, got {self.block}", remedy=None)
        if self.stagger is not None and self.stagger < 1:
            raise UsageError(f"stagger must be at least 1, got {self.stagger}", remedy=None)
