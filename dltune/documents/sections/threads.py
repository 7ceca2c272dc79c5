"""The plan's section on the threads of ops, their placement and co-runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from dltune.documents import opkey
from dltune.documents.faults import AMOUNT, at_least, each, empty, index, one_of, repeated
from dltune.documents.profile import Placement
from dltune.visible import visible

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
    yield from at_least(1).of("threads.uniform", threads.uniform, "intra", "inter")
    if threads.hyperthreads and not threads.corun:
        yield "threads.hyperthreads must be off without corun: strategy 4 needs strategy 3"
    yield from AMOUNT.of("threads", threads, "small")
    yield from repeated("threads.ops", "key", (op.key for op in threads.ops))
    for here, op in each("threads.ops", threads.ops):
        yield from _op_faults(f"{here} ({op.key})", op, cores)
        if (node := opkey.named_node(op.key)) and node[0] not in signatures:
            yield f"{here}.key must name a node of the plan's graphs, got {visible(repr(op.key))}"
    predicted = {prediction.setting for prediction in threads.predictions}
    yield from one_of(predicted, "the settings in predictions").of("threads", threads, "strategy")
    for here, prediction in each("threads.predictions", threads.predictions):
        yield from AMOUNT.of(here, prediction, "seconds", "speedup", "corunning")


def _op_faults(here: str, op: OpPlan, cores: int) -> Iterator[str]:
    yield from at_least(1).of(here, op, "threads")
    yield from AMOUNT.of(here, op, "seconds", "serial")
    if op.cores is not None:
        yield from empty(here, op, "cores")
        yield from repeated(f"{here}.cores", "core", op.cores)
        yield from index(cores, "cores").faults(f"{here}.cores", *op.cores)
    if len(op.candidates) > CANDIDATES:
        yield f"{here}.candidates must be at most {CANDIDATES}, got {len(op.candidates)} of them"
    for at, candidate in each(f"{here}.candidates", op.candidates):
        yield from at_least(1).of(at, candidate, "threads")
        yield from AMOUNT.of(at, candidate, "seconds")
