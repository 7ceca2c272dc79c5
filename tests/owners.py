"""What each system of dltune adds to its interface, also while the system is not installed."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from dltune import extensions


class Owned(NamedTuple):
    """Names of a system's commands, planners and kinds of documents."""

    commands: tuple[str, ...] = ()
    planners: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()


SYSTEMS = {
    "lmdb": Owned(commands=("io-report", "lmdb"), planners=("io",)),
    "memory": Owned(planners=("memory",)),
    "parallelism": Owned(
        planners=("parallelism",),
        documents=("dltune.operators", "dltune.operator-times", "dltune.topology"),
    ),
    "ranks": Owned(
        commands=("horovod-report",),
        planners=("allreduce", "buckets"),
        documents=("dltune.horovod",),
    ),
    "transfers": Owned(planners=("transfers",)),
}


def owner(registry: str, name: str) -> set[str]:
    """Return the system that owns a name in a field of `Owned`; nothing if core owns it."""
    return {system for system, owned in SYSTEMS.items() if name in getattr(owned, registry)}


def installed() -> set[str]:
    """Return the systems that are installed."""
    return {extension.name for extension in extensions.own()} & set(SYSTEMS)


NEEDS_ALL = pytest.mark.skipif(installed() != set(SYSTEMS), reason="needs all of dltune's systems")
