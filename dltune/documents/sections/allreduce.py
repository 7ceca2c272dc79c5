"""The plan's section on Horovod: its background thread's cores, sleeps, bins and knobs.

Each part can be left out (None): then stock Horovod decides. The names of the methods are those of
Pumma's thesis on parallel I/O and computational imbalance, section 6.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

Controller = Literal["mpi", "gloo"]


class RankCores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SCP (section 6.3.3): the cores of one local rank, by component.

    Indices of the machine's cores. `helpers` are threads of MPI or gloo, `input` those of tf.data.
    Components may share cores; none may be empty.
    """

    background: tuple[int, ...]
    helpers: tuple[int, ...]
    compute: tuple[int, ...]
    input: tuple[int, ...]


class Bin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """TOPO (section 6.3.4): tensors that travel together, once the last of them is there.

    `tensors`: positions in the list of dense gradients that the job hands to Horovod (the order of
    its variables). `bytes`: of all of them.
    """

    tensors: tuple[int, ...]
    bytes: int


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bins of one call that reduces gradients, in the order in which all ranks submit them.

    `shapes` and `dtypes` of the gradients, by which the call is recognised in the job.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    bins: tuple[Bin, ...]


class Sleeps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the background thread sleeps where it would spin or look in vain. Times are seconds.

    `between_tests`: NBCS (section 6.3.2), the sleep between two tests of a non-blocking collective.
    `agree_every`: GS (section 6.3.1), all ranks agree on the least sleep every so many cycles.
    `rest`: the most that it sleeps from one cycle to the next while this rank has nothing to send;
    a tensor that arrives ends it.
    """

    between_tests: float | None
    agree_every: int | None
    rest: float | None = None


class Knobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Horovod's own settings: HOROVOD_CYCLE_TIME (here seconds), HOROVOD_FUSION_THRESHOLD (bytes),
    HOROVOD_CACHE_CAPACITY (tensors)."""

    cycle_time: float
    fusion_threshold: int
    cache_capacity: int


class RankThreads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """TensorFlow's own pools in each rank."""

    intra: int
    inter: int


class MethodPrediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulated seconds of a step under a method, such as "original", "scp", "topo", "scp-topo".

    `background`: CPU share of a core that the background thread takes.
    """

    method: str
    seconds: float
    background: float


class AllreducePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`report`: SHA-256 of the horovod document's content. `ranks` in all, `local` on this node.

    `yield_when_idle`: Open MPI's own setting. `reasons`: why, a sentence each.
    """

    report: str
    controller: Controller
    ranks: int
    local: int
    cores: tuple[RankCores, ...] | None
    threads: RankThreads | None
    orders: tuple[Order, ...] | None
    sleeps: Sleeps | None
    knobs: Knobs | None
    yield_when_idle: bool
    predictions: tuple[MethodPrediction, ...]
    reasons: tuple[str, ...]


def faults(section: AllreducePlan, cores: int) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    here = "allreduce"
    if section.ranks < 1:
        yield f"{here}.ranks: {section.ranks} is below 1"
    if not 1 <= section.local <= max(section.ranks, 1):
        yield f"{here}.local: {section.local} is not one of 1 to {section.ranks}"
    if section.cores is not None:
        yield from _core_faults(section, section.cores, cores)
    if section.threads is not None:
        for field in ("intra", "inter"):
            if getattr(section.threads, field) < 1:
                yield f"{here}.threads.{field}: {getattr(section.threads, field)} is below 1"
    for index, order in enumerate(section.orders or ()):
        yield from _order_faults(f"{here}.orders[{index}]", order)
    if section.sleeps is not None:
        yield from _sleep_faults(section)
    if section.knobs is not None:
        yield from _knob_faults(section.knobs)
    if section.yield_when_idle and section.controller != "mpi":
        yield f"{here}.yield_when_idle: a setting of Open MPI; the job's controller is gloo"
    for index, prediction in enumerate(section.predictions):
        for field in ("seconds", "background"):
            if not _is_time(getattr(prediction, field)):
                value = getattr(prediction, field)
                yield f"{here}.predictions[{index}].{field}: {value} is negative or not finite"


def _core_faults(section: AllreducePlan, ranks: tuple[RankCores, ...], cores: int) -> Iterator[str]:
    if len(ranks) != section.local:
        yield f"allreduce.cores: {len(ranks)} entries for {section.local} local ranks"
    for index, rank in enumerate(ranks):
        for field in ("background", "helpers", "compute", "input"):
            here, mine = f"allreduce.cores[{index}].{field}", getattr(rank, field)
            if not mine:
                yield f"{here}: empty, so these threads could run nowhere"
            if len(set(mine)) < len(mine):
                yield f"{here}: a core is there twice"
            for core in sorted({core for core in mine if not 0 <= core < cores}):
                yield f"{here}: core {core} is not one of 0 to {cores - 1}"


def _order_faults(here: str, order: Order) -> Iterator[str]:
    if len(order.shapes) != len(order.dtypes):
        yield f"{here}: {len(order.shapes)} shapes but {len(order.dtypes)} dtypes"
    placed = [tensor for bin_ in order.bins for tensor in bin_.tensors]
    if sorted(placed) != list(range(len(order.shapes))):
        yield f"{here}.bins: they do not hold each of the {len(order.shapes)} gradients once"
    for index, bin_ in enumerate(order.bins):
        if not bin_.tensors:
            yield f"{here}.bins[{index}].tensors: empty"
        if bin_.bytes < 0:
            yield f"{here}.bins[{index}].bytes: {bin_.bytes} is negative"


def _sleep_faults(section: AllreducePlan) -> Iterator[str]:
    here, sleeps = "allreduce.sleeps", section.sleeps
    assert sleeps is not None
    if section.controller != "mpi":
        yield f"{here}: gloo blocks where MPI spins, so there is nothing to sleep through"
    if sleeps.between_tests is not None and not (
        _is_time(sleeps.between_tests) and 0 < sleeps.between_tests <= 1
    ):
        yield f"{here}.between_tests: {sleeps.between_tests} is not within 0 to 1 s"
    if sleeps.agree_every is not None and sleeps.agree_every < 1:
        yield f"{here}.agree_every: {sleeps.agree_every} is below 1"
    if sleeps.rest is not None and sleeps.agree_every is not None:
        yield f"{here}: ranks that agree on the least sleep (agree_every) do not rest (rest)"
    if sleeps.rest is not None and not (_is_time(sleeps.rest) and 0 < sleeps.rest <= 1):
        yield f"{here}.rest: {sleeps.rest} is not within 0 to 1 s"


def _knob_faults(knobs: Knobs) -> Iterator[str]:
    if not (_is_time(knobs.cycle_time) and knobs.cycle_time <= 10):
        yield f"allreduce.knobs.cycle_time: {knobs.cycle_time} is not within 0 to 10 s"
    for field in ("fusion_threshold", "cache_capacity"):
        if getattr(knobs, field) < 0:
            yield f"allreduce.knobs.{field}: {getattr(knobs, field)} is negative"


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0
