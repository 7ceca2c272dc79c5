"""The profile document: what was measured, and nothing decided.

Times are seconds, sizes are bytes. An *op* is a key (op type, input dtypes and shapes, the
attributes that change the work); a *node* is one place in a graph that runs an op.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dltune.documents.machine import Machine

SCHEMA = "dltune.profile/1"

Placement = Literal["spread", "shared"]


class OpTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An op's time at one thread count and placement, ops serialised.

    `spread` is half the interquartile range of the samples divided by their median.
    """

    threads: int
    placement: Placement
    samples: int
    min: float
    median: float
    spread: float


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One op key.

    `count`: how often a round of the steps runs it. `own`: its median time under the job's own
    settings, not serialised. `times` is empty for an op that dltune does not control: an
    asynchronous kernel, or one that may wait for another.
    """

    key: str
    type: str
    inputs: tuple[str, ...]
    count: int
    output_bytes: int
    own: float | None
    times: tuple[OpTime, ...]


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node of an executed graph.

    `op` indexes `Profile.ops` (None: it never ran a kernel, such as a constant). `inputs` and
    `control` are indices of the nodes it waits for. `repeats`: runs per execution (more than one in
    a loop, 0 when the node did not run). `start` and `end` are seconds since the first op of one
    sampled execution under the job's own settings.
    """

    name: str
    type: str
    op: int | None
    inputs: tuple[int, ...]
    control: tuple[int, ...]
    output_bytes: int
    repeats: float
    start: float | None = None
    end: float | None = None


class Samples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Repeated measurements of one quantity, in seconds. `spread` as in `OpTime`."""

    samples: int
    min: float
    median: float
    spread: float


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A graph whose executions repeat: a training step, or one of several (a GAN's two).

    `wall`: from the start of one execution to the start of the next, under the job's own settings.
    `span`: from an execution's first op to its last, likewise. `share` is its part of all op time.
    """

    signature: str
    name: str
    executions: int
    share: float
    wall: Samples
    span: Samples
    nodes: tuple[Node, ...]


class TensorFlowBuild(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    git: str
    python: str


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job's own thread settings as TensorFlow resolved them."""

    intra: int
    inter: int


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that TensorFlow's CPU allocator held: between steps, and at most within one."""

    live: int
    peak: int


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`partial` is the reason why the profile is incomplete, None when it is whole."""

    schema: str
    created: str
    dltune: str
    partial: str | None
    command: tuple[str, ...]
    machine: Machine
    tensorflow: TensorFlowBuild
    settings: Settings
    interval: int
    steps: tuple[Step, ...]
    ops: tuple[Op, ...]
    memory: Memory | None
    notes: tuple[str, ...]
