"""What a setting around the ops is: one declarative entry of the space that `tune` searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dltune.documents.machine import Machine
from dltune.documents.plan import Uniform
from dltune.documents.plan_settings import Kind


@dataclass(frozen=True)
class Circumstances:
    """What decides which settings fit: the machine, the job's command and its environment."""

    machine: Machine
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Means:
    """What is done to an unmodified job.

    `environment`: variables that are set. `joined`: variables whose parts are added to what the
    user has there, by the separator that the variable has (`LD_PRELOAD`, `GLIBC_TUNABLES`,
    `TF_XLA_FLAGS`). `preload`: libraries that come before all others. `uniform`: TensorFlow's own
    thread pools; 0 leaves one as the job has it. `cpus`: those that the job is confined to.
    `hooks`: what the bootstrap does in the job's Python, by name (`tensorflow/inject`).
    `command`: the job's command, where the setting is the launcher's (None: as it was given).
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    joined: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[Path, ...] = ()
    uniform: Uniform | None = None
    cpus: tuple[int, ...] | None = None
    hooks: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Setting:
    """One thing to set.

    `name` is what a plan and the command line call it; `what`: a sentence for people. `values`
    gives what may be tried here beside leaving it as it is, likeliest gain first; `unfit` the
    reason why nothing can be tried here (None: it can). `means` tells what a value does.
    `kind` says what it may change in the job's results, `source` where it is known from.
    `joins`: names of settings with which it interacts, so that they are tried together.
    """

    name: str
    what: str
    kind: Kind
    source: str
    values: Callable[[Circumstances], tuple[str, ...]]
    means: Callable[[str, Circumstances], Means]
    unfit: Callable[[Circumstances], str | None] = lambda _: None
    joins: tuple[str, ...] = ()
