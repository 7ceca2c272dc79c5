"""What a setting around the ops is: one declarative entry of the space that `tune` searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dltune.documents.machine import Machine
from dltune.documents.sections.settings import Kind
from dltune.documents.sections.threads import Uniform
from dltune.errors import UsageError


@dataclass(frozen=True)
class Circumstances:
    """What decides which settings fit: the machine, the job's command and its environment."""

    machine: Machine
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Means:
    """What is done to an unmodified job.

    `environment`: variables that are set. `joined`: parts ("NAME=VALUE" or a flag) that are added
    to what the user has in a list-like variable (`GLIBC_TUNABLES`, `TF_XLA_FLAGS`). `preload`:
    libraries that come before all others. `uniform`: TensorFlow's own thread pools. `cpus`: those
    that the job is confined to. `shared`: each rank is confined to its part of the node's cores.
    `ranks`: how many the launcher starts (`launcher.filled`); `flags`: what it is given first.
    `hooks`: what the bootstrap does in the job's Python, by name (`tensorflow/inject`).
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    preload: tuple[Path, ...] = ()
    uniform: Uniform | None = None
    cpus: tuple[int, ...] | None = None
    shared: bool = False
    ranks: int | None = None
    flags: tuple[str, ...] = ()
    hooks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One thing to set.

    `name` is what a plan and the command line call it; `what`: a sentence for people. `ways` tells
    what each value does here, likeliest gain first; `unfit` the reason why nothing can be tried
    here (None: it can). Where values are not known by name, `offers` gives those that are worth
    trying and `reads`, which goes with it, what any value does; it raises as `means`. `kind` says
    what it may change in the job's results, `source` where it is known from. `joins`: names of
    settings with which it interacts, so that they are tried together. `users`: how the user has set
    it himself, as a sentence, beyond the variables that its means name (None: he has not).
    `default`: the value that is in force when nobody sets it, where that is one of the values.
    `untried`: values that cannot be had here, and why. `changes_graph`: a job's step may have
    another graph with it than without, so that what was planned for single ops is not met.
    `framework`: whose jobs it is for, as documents call it (None: any); `framework_of`: whose a
    value is for.
    """

    name: str
    what: str
    kind: Kind
    source: str
    ways: Callable[[Circumstances], Mapping[str, Means]] = lambda _: {}
    offers: Callable[[Circumstances], Iterable[str]] | None = None
    reads: Callable[[str, Circumstances], Means] | None = None
    unfit: Callable[[Circumstances], str | None] = lambda _: None
    joins: tuple[str, ...] = ()
    users: Callable[[Circumstances], str | None] = lambda _: None
    default: Callable[[Circumstances], str | None] = lambda _: None
    untried: Callable[[Circumstances], Mapping[str, str]] = lambda _: {}
    changes_graph: bool = False
    framework: str | None = None
    framework_of: Callable[[str], str | None] = lambda _: None

    def values(self, here: Circumstances) -> tuple[str, ...]:
        """What is worth trying here beside leaving it as it is, likeliest gain first."""
        return tuple(self.offers(here) if self.offers else self.ways(here))

    def means(self, value: str, here: Circumstances) -> Means:
        """What a value does. Raises UsageError for a value that there is not, or not here."""
        if self.reads:
            return self.reads(value, here)
        ways = self.ways(here)
        if value in ways:
            return ways[value]
        if not ways and (why := self.unfit(here)):
            raise UsageError(f"{self.name}={value} cannot be done here: {why}")
        raise UsageError(
            f"{self.name}={value}: there is no such value; it can be {' or '.join(ways)}"
        )
