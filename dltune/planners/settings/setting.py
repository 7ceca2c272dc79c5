"""What a setting around the ops is: one declarative entry of the space that `tune` searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dltune.documents.machine import Machine
from dltune.documents.plan import Uniform
from dltune.documents.sections.settings import Kind


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


@dataclass(frozen=True)
class Setting:
    """One thing to set.

    `name` is what a plan and the command line call it; `what`: a sentence for people. `values`
    gives what is worth trying here beside leaving it as it is, likeliest gain first; `unfit` the
    reason why nothing can be tried here (None: it can). `means` tells what a value does, and
    raises UsageError for a value that there is not, or not here. `kind` says what it may change in
    the job's results, `source` where it is known from. `joins`: names of settings with which it
    interacts, so that they are tried together. `users`: how the user has set it himself, as a
    sentence, beyond the variables that its means name (None: he has not). `default`: the value
    that is in force when nobody sets it, where that is one of the values. `untried`: values that
    cannot be had here, and why.
    """

    name: str
    what: str
    kind: Kind
    source: str
    values: Callable[[Circumstances], tuple[str, ...]]
    means: Callable[[str, Circumstances], Means]
    unfit: Callable[[Circumstances], str | None] = lambda _: None
    joins: tuple[str, ...] = ()
    users: Callable[[Circumstances], str | None] = lambda _: None
    default: Callable[[Circumstances], str | None] = lambda _: None
    untried: Callable[[Circumstances], Mapping[str, str]] = lambda _: {}
