"""A setting around the ops: one declarative entry of the space that `tune` searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.schemas.settings import Kind


@dataclass(frozen=True)
class Circumstances:
    """Facts that decide which settings fit: the machine, the job's command and its environment."""

    machine: Machine
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Means:
    """Changes to an unmodified job.

    `environment`: variables that are set. `joined`: parts ("NAME=VALUE" or a flag) that are added
    to the user's parts of a list-like variable (`GLIBC_TUNABLES`, `TF_XLA_FLAGS`). `preload`:
    libraries that come before all others. `uniform`: TensorFlow's own thread pools. `cpus`: CPUs
    that the job is confined to. `shared`: each rank is confined to its part of the node's cores.
    `ranks`: number that the launcher starts (`launcher.filled`); `flags`: its first arguments.
    `hooks`: values of the bootstrap's hooks in the job's Python, by name (`extensions.Hook`).
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

    - `name`: the name in a plan and on the command line.
    - `order`: its place in a search; settings with a likely gain have low numbers.
    - `what`: the change that it makes, a sentence; `helps`: the jobs that profit, a sentence.
    - `meanings`: the effect of each value, by value; a letter in the key stands for a number.
    - `kind`: possible changes of the job's results; `source`: the reference.
    - `ways`: the means for each value here, likeliest gain first.
    - `offers` and `reads`, in place of `ways` where values are not listed: the values that are
      worth trying, and the means for any value (raises as `means`).
    - `unfit`: the reason why no value can be tried here (None: a value can).
    - `joins`: names of settings that interact with it, so that they are tried together;
      `joined_by`: names of settings that are to have it in their `joins`.
    - `users`: how the user has set it, beyond the variables of its means (None: not set).
    - `default`: the value in force when nobody sets it, where that is one of the values.
    - `untried`: values that are not available here, and why.
    - `changes_graph`: the job's step can have another graph with it, which does not match plans
      for single ops.
    - `framework`: the only framework that has it (None: any); `framework_of`: the same for a value.
    """

    name: str
    what: str
    helps: str
    meanings: Mapping[str, str]
    kind: Kind
    source: str
    ways: Callable[[Circumstances], Mapping[str, Means]] = lambda _: {}
    offers: Callable[[Circumstances], Iterable[str]] | None = None
    reads: Callable[[str, Circumstances], Means] | None = None
    unfit: Callable[[Circumstances], str | None] = lambda _: None
    joins: tuple[str, ...] = ()
    joined_by: tuple[str, ...] = ()
    users: Callable[[Circumstances], str | None] = lambda _: None
    default: Callable[[Circumstances], str | None] = lambda _: None
    untried: Callable[[Circumstances], Mapping[str, str]] = lambda _: {}
    changes_graph: bool = False
    framework: str | None = None
    framework_of: Callable[[str], str | None] = lambda _: None
    order: int = 1000

    def values(self, here: Circumstances) -> tuple[str, ...]:
        """Return the values worth trying here, other than no change, likeliest gain first."""
        return tuple(self.offers(here) if self.offers else self.ways(here))

    def means(self, value: str, here: Circumstances) -> Means:
        """Return the means of a value. Raises UsageError if it does not exist, or not here."""
        if self.reads:
            return self.reads(value, here)
        ways = self.ways(here)
        if value in ways:
            return ways[value]
        if not ways and (why := self.unfit(here)):
            raise UsageError(f"{self.name}={value} cannot be used here: {why}", remedy=None)
        raise UsageError(f"{self.name}={value}: unknown value", remedy=f"use {' or '.join(ways)}")
