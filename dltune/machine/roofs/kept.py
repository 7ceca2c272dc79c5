"""Roofs are measured once for a machine and kept beside the built code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dltune.documents import files
from dltune.documents import roofs as document
from dltune.documents.machine import Machine
from dltune.documents.roofs import Roofs
from dltune.errors import UsageError
from dltune.machine.roofs.fingerprint import fingerprint
from dltune.machine.roofs.measure import measure
from dltune.native.build import cache_folder

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
    """Measured now, and kept. Raises as `measure`, and UsageError when the cache folder cannot be
    written."""
    roofs = measure(machine, SECONDS)
    file = path(machine)
    file.parent.mkdir(parents=True, exist_ok=True)
    with files.claim(file, overwrite=True) as output:
        output.write(roofs)
    return roofs


def roofs_of(machine: Machine, on_measure: Callable[[], None]) -> Roofs:
    """Those kept, else measured now, which `on_measure` is told of. Raises as `measured_anew`."""
    found = kept(machine)
    if found is not None:
        return found
    on_measure()
    return measured_anew(machine)
