"""The plan's section on the threads of ops, their placement and co-runs."""

from __future__ import annotations

import collections
import math
from collections.abc import Collection, Iterator

import msgspec

from dltune.documents import opkey
from dltune.documents.profile import Placement

CANDIDATES = 3  # "three", an empirical number of the paper (section III-D, strategy 3)


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way to run an op, with its predicted time in seconds."""

    threads: int
    placement: Placement
    seconds: float


class OpPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one op key runs, or one node: then `key` is `opkey.of_node` of it, and it goes before its
    op's own entry.

    `threads`: into how many parts the work is divided. `cores`: the core indices it may run on;
    None leaves them to the scheduler, which takes as many as `threads` in the given `placement`.
    `serial`: predicted seconds on one thread. `candidates`: what strategy 3 may choose from, the
    most performant first (section III-D; three in the paper).
    """

    key: str
    threads: int
    placement: Placement
    seconds: float
    serial: float
    cores: tuple[int, ...] | None = None
    candidates: tuple[Candidate, ...] = ()

    @property
    def choice(self) -> Candidate:
        return Candidate(self.threads, self.placement, self.seconds)


class Uniform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thread setting for all ops, as TensorFlow itself knows it."""

    intra: int
    inter: int


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulated time of a round of the steps under a setting.

    `setting`: "default", "recommended", "uniform AxB" (intra A, inter B), "s1+s2", "s1+s2+s3",
    "s1+s2+s3+s4" (with "@N": no op on more than N threads), "bitwise+s3". `speedup` is over
    "recommended"; `corunning` is the mean number of ops in flight over the events of Fig. 4 (an op
    starts or ends).
    """

    setting: str
    seconds: float
    speedup: float
    corunning: float


class Threads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Intra-op threads, placement and co-running (sections III-C and III-D).

    `strategy` names the chosen prediction. `uniform` is the setting of TensorFlow itself under
    which the plan runs; when `ops` is empty it is the whole plan. `corun` turns strategy 3 on,
    `hyperthreads` strategy 4. Ops whose `serial` time is below `small` seconds are left to
    TensorFlow's own pool and are not admitted one by one.
    """

    strategy: str
    uniform: Uniform
    corun: bool
    hyperthreads: bool
    small: float
    ops: tuple[OpPlan, ...]
    predictions: tuple[Prediction, ...]


def faults(threads: Threads, cores: int, signatures: Collection[str]) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first; on a machine of `cores`
    cores, for graphs of these `signatures`."""
    for field in ("intra", "inter"):
        if getattr(threads.uniform, field) < 1:
            yield f"threads.uniform.{field}: {getattr(threads.uniform, field)} is below 1"
    if threads.hyperthreads and not threads.corun:
        yield "threads.hyperthreads: strategy 4 needs strategy 3 (corun)"
    if not _is_time(threads.small):
        yield f"threads.small: {threads.small} is negative or not finite"
    keys = collections.Counter(op.key for op in threads.ops)
    yield from (f"threads.ops: the key {k!r} is there {n} times" for k, n in keys.items() if n > 1)
    for index, op in enumerate(threads.ops):
        yield from _op_faults(f"threads.ops[{index}] ({op.key})", op, cores)
        if (node := opkey.named_node(op.key)) and node[0] not in signatures:
            yield f"threads.ops[{index}].key: {op.key} names no node of the plan's graphs"
    if threads.strategy not in {prediction.setting for prediction in threads.predictions}:
        yield f"threads.strategy: {threads.strategy!r} is none of the settings in predictions"
    for index, prediction in enumerate(threads.predictions):
        for field in ("seconds", "speedup", "corunning"):
            if not _is_time(getattr(prediction, field)):
                value = getattr(prediction, field)
                yield f"threads.predictions[{index}].{field}: {value} is negative or not finite"


def _op_faults(here: str, op: OpPlan, cores: int) -> Iterator[str]:
    if op.threads < 1:
        yield f"{here}.threads: {op.threads} is below 1"
    for field in ("seconds", "serial"):
        if not _is_time(getattr(op, field)):
            yield f"{here}.{field}: {getattr(op, field)} is negative or not finite"
    if op.cores is not None:
        if not op.cores:
            yield f"{here}.cores: an op needs at least one core"
        if len(set(op.cores)) < len(op.cores):
            yield f"{here}.cores: a core is named twice"
        for core in op.cores:
            if not 0 <= core < cores:
                yield f"{here}.cores: there is no core {core} among {cores}"
    if len(op.candidates) > CANDIDATES:
        yield f"{here}.candidates: {len(op.candidates)} of them; at most {CANDIDATES}"
    for index, candidate in enumerate(op.candidates):
        if candidate.threads < 1:
            yield f"{here}.candidates[{index}].threads: {candidate.threads} is below 1"
        if not _is_time(candidate.seconds):
            value = candidate.seconds
            yield f"{here}.candidates[{index}].seconds: {value} is negative or not finite"


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value >= 0
