"""Roofs are measured once for a machine and kept beside the built code."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from dltune.base import files
from dltune.base.errors import UsageError
from dltune.native.build import cache_folder
from dltune.schemas import roofs as document
from dltune.schemas.machine import Machine
from dltune.schemas.roofs import Roofs
from dltune.system.roofs.fingerprint import fingerprint
from dltune.system.roofs.measure import measure

# to measure in, about; on a quiet machine all is settled sooner
SECONDS = 3.0


def path(machine: Machine) -> Path:
    """Where the roofs of this machine, as it is now, are kept."""
    return cache_folder() / f"roofs-{fingerprint(machine)}.json"


def kept(machine: Machine) -> Roofs | None:
    """None where they are not measured yet. A file that is damaged counts as none: it is a cache,
    and is measured anew."""
    file = path(machine)
    if not file.exists():
        return None
    try:
        return document.load(file)
    except UsageError:
        return None


def measured_anew(machine: Machine) -> Roofs:
    """Measured now, and kept; one process after the other. Raises as `measure`, and UsageError when
    the cache folder cannot be written."""
    with _alone(machine):
        return _measured(machine)


def roofs_of(machine: Machine, on_measure: Callable[[], None]) -> Roofs:
    """Those kept, else measured now, which `on_measure` is told of. Processes that ask at the same
    time measure once. Raises as `measured_anew`."""
    if found := kept(machine):
        return found
    with _alone(machine):
        if found := kept(machine):
            return found
        on_measure()
        return _measured(machine)


def _measured(machine: Machine) -> Roofs:
    roofs = measure(machine, SECONDS)
    files.Output(path(machine), overwrite=True).write(roofs)
    return roofs


@contextlib.contextmanager
def _alone(machine: Machine) -> Iterator[None]:
    """The only one that measures here; who comes later waits."""
    file = path(machine).with_suffix(".lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(
            f"cannot write to the cache folder {file.parent}: {error.strerror}",
            remedy="set DLTUNE_CACHE to a writable folder",
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
