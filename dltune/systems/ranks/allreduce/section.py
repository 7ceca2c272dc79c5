"""The plan's section on Horovod: cores, sleeps and bins of its background thread, and its settings.

Each part can be null: then Horovod decides. Sections refer to Pumma's thesis.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from dltune.base.documents import AMOUNT, Bound, at_least, at_most, each, empty, index, repeated
from dltune.schemas.plan import Uniform

Controller = Literal["mpi", "gloo"]


class RankCores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cores of one local rank, by component: the method core-partition (SCP, section 6.3.3).
    Components can share cores; none is empty.

    `background`: Horovod's background thread.
    `helpers`: threads of MPI or gloo.
    `compute`: ops.
    `input`: threads of tf.data.
    """

    background: tuple[int, ...]
    helpers: tuple[int, ...]
    compute: tuple[int, ...]
    input: tuple[int, ...]


class Bin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tensors that travel together once the last of them is available: the method ordered-bins
    (TOPO, section 6.3.4).

    `tensors`: positions in the list of gradients that the job passes to Horovod.
    `bytes`: size.
    `elements`: for a tensor that travels in several bins, its first element in this bin and the
      first element after it.
    """

    tensors: tuple[int, ...]
    bytes: int
    elements: tuple[int, int] | None = None


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bins of one call that reduces gradients.

    `shapes`, `dtypes`: shapes and types of the gradients, which identify the call.
    `bins`: bins in the order in which all ranks submit them.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    bins: tuple[Bin, ...]


class Sleeps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sleeps of the background thread, in place of busy waiting.

    `between_tests`: seconds between two tests of a non-blocking collective: the method non-blocking
      (NBCS, section 6.3.2).
    `agree_every`: number of cycles after which all ranks agree on the shortest sleep: the method
      global-sleep (GS, section 6.3.1).
    `rest`: longest sleep in seconds while the rank has nothing to send; a new tensor ends it.
    """

    between_tests: float | None
    agree_every: int | None
    rest: float | None = None


class Knobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Horovod's own settings.

    `cycle_time`: `HOROVOD_CYCLE_TIME`, in seconds.
    `fusion_threshold`: `HOROVOD_FUSION_THRESHOLD`, in bytes.
    `cache_capacity`: `HOROVOD_CACHE_CAPACITY`, in tensors.
    """

    cycle_time: float
    fusion_threshold: int
    cache_capacity: int


class MethodPrediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A simulated method.

    `method`: `original`, a method, or a combination such as `core-partition+ordered-bins`.
    `seconds`: step time.
    `background`: share of a core that the background thread uses.
    """

    method: str
    seconds: float
    background: float


class AllreducePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Decisions for Horovod.

    `report`: SHA-256 of the horovod document's content.
    `controller`: `mpi` or `gloo`.
    `ranks`, `local`: number of ranks in total and on this node.
    `cores`: cores per local rank (core-partition).
    `threads`: TensorFlow's thread setting in each rank.
    `orders`: order of bins per call that reduces gradients (ordered-bins).
    `sleeps`: sleeps of the background thread; only with MPI.
    `knobs`: Horovod's own settings.
    `yield_when_idle`: Open MPI's `mpi_yield_when_idle`.
    `predictions`: simulated methods.
    `reasons`: explanations, one sentence each.
    """

    report: str
    controller: Controller
    ranks: int
    local: int
    cores: tuple[RankCores, ...] | None
    threads: Uniform | None
    orders: tuple[Order, ...] | None
    sleeps: Sleeps | None
    knobs: Knobs | None
    yield_when_idle: bool
    predictions: tuple[MethodPrediction, ...]
    reasons: tuple[str, ...]


def pieces(bins: Iterable[Bin]) -> dict[int, int]:
    """By tensor, in how many pieces it travels, of those that are cut."""
    return collections.Counter(bin_.tensors[0] for bin_ in bins if bin_.elements)


def faults(section: AllreducePlan, cores: int) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first; on a node of `cores`
    cores."""
    here = "allreduce"
    yield from at_least(1).of(here, section, "ranks", "local")
    yield from at_most(section.ranks, "the total number of ranks").of(here, section, "local")
    if section.cores is not None and len(section.cores) != section.local:
        yield (
            f"{here}.cores must have length {section.local} (one for each local rank), got "
            f"{len(section.cores)}"
        )
    for at, rank in each(f"{here}.cores", section.cores or ()):
        yield from empty(at, rank, *RankCores.__struct_fields__)
        for field in RankCores.__struct_fields__:
            mine = getattr(rank, field)
            yield from repeated(f"{at}.{field}", "core", mine)
            yield from index(cores, "cores").faults(f"{at}.{field}", *mine)
    yield from at_least(1).of(f"{here}.threads", section.threads, "intra", "inter")
    for at, order in each(f"{here}.orders", section.orders or ()):
        yield from _order_faults(at, order)
    if section.sleeps is not None:
        yield from _sleep_faults(f"{here}.sleeps", section.sleeps, section.controller)
    yield from _CYCLE.of(f"{here}.knobs", section.knobs, "cycle_time")
    yield from at_least(0).of(f"{here}.knobs", section.knobs, "fusion_threshold", "cache_capacity")
    if section.yield_when_idle and section.controller != "mpi":
        yield f"{here}.yield_when_idle must be false with gloo: it is a setting of Open MPI"
    for at, prediction in each(f"{here}.predictions", section.predictions):
        yield from AMOUNT.of(at, prediction, "seconds", "background")


def _order_faults(here: str, order: Order) -> Iterator[str]:
    gradients = len(order.shapes)
    if len(order.dtypes) != gradients:
        yield (
            f"{here}.dtypes must have length {gradients} (one for each shape), got "
            f"{len(order.dtypes)}"
        )
    for at, bin_ in each(f"{here}.bins", order.bins):
        yield from empty(at, bin_, "tensors")
        yield from at_least(0).of(at, bin_, "bytes")
        if bin_.elements and len(bin_.tensors) > 1:
            yield f"{at}.elements must belong to one tensor, got {len(bin_.tensors)}"
    parts: dict[int, list[tuple[int, int] | None]] = {}
    for bin_ in order.bins:
        for tensor in bin_.tensors:
            parts.setdefault(tensor, []).append(bin_.elements)
    if parts.keys() != set(range(gradients)) or not all(
        mine == [None] or _covers(mine, math.prod(order.shapes[tensor]))
        for tensor, mine in parts.items()
    ):
        yield (
            f"{here}.bins must contain each of the {gradients} gradients exactly once, or all its "
            "elements in consecutive pieces"
        )


def _covers(pieces: Sequence[tuple[int, int] | None], elements: int) -> bool:
    end = 0
    for piece in pieces:
        if piece is None or not end == piece[0] < piece[1]:
            return False
        end = piece[1]
    return end == elements


def _sleep_faults(here: str, sleeps: Sleeps, controller: Controller) -> Iterator[str]:
    if controller != "mpi":
        yield f"{here} must be null with gloo, which blocks where MPI spins"
    yield from _SLEEP.of(here, sleeps, "between_tests", "rest")
    yield from at_least(1).of(here, sleeps, "agree_every")
    if sleeps.rest is not None and sleeps.agree_every is not None:
        yield f"{here}.rest must be null when the ranks agree on the shortest sleep (agree_every)"


_SLEEP = Bound("above 0 and at most 1 s", lambda seconds: 0 < seconds <= 1)
_CYCLE = Bound("between 0 and 10 s", lambda seconds: 0 <= seconds <= 10)
