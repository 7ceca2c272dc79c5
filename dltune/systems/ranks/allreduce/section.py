"""The plan's section on Horovod: cores, sleeps and bins of its background thread, and its settings.

Each part can be null: then Horovod decides. Sections refer to Pumma's thesis.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from dltune.base.documents import AMOUNT, FILLED, Bound, at_least, at_most, each, index, repeated
from dltune.schemas.plan import Uniform

Controller = Literal["mpi", "gloo"]

_SLEEP = Bound("above 0 and at most 1 s", lambda seconds: 0 < seconds <= 1)
_CYCLE = Bound("between 0 and 10 s", lambda seconds: 0 <= seconds <= 10)


class RankCores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cores of one local rank, by component: the method core-partition (SCP, section 6.3.3).
    Components can share cores; none is empty.

    `background`: Horovod's background thread.
    `helpers`: threads of MPI or gloo.
    `compute`: ops.
    `input`: threads of tf.data.
    """

    background: Annotated[tuple[int, ...], FILLED]
    helpers: Annotated[tuple[int, ...], FILLED]
    compute: Annotated[tuple[int, ...], FILLED]
    input: Annotated[tuple[int, ...], FILLED]

    def relation_faults(self) -> Iterator[str]:
        for field in self.__struct_fields__:
            yield from repeated(field, "core", getattr(self, field))


class Bin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tensors that travel together once the last of them is available: the method ordered-bins
    (TOPO, section 6.3.4).

    `tensors`: positions in the list of gradients that the job passes to Horovod.
    `bytes`: size.
    `elements`: for a tensor that travels in several bins, its first element in this bin and the
      first element after it.
    """

    tensors: Annotated[tuple[int, ...], FILLED]
    bytes: Annotated[int, at_least(0)]
    elements: tuple[int, int] | None = None

    def relation_faults(self) -> Iterator[str]:
        if self.elements and len(self.tensors) > 1:
            yield f"elements must belong to one tensor, got {len(self.tensors)}"


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bins of one call that reduces gradients.

    `shapes`, `dtypes`: shapes and types of the gradients, which identify the call.
    `bins`: bins in the order in which all ranks submit them.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    bins: tuple[Bin, ...]

    def relation_faults(self) -> Iterator[str]:
        gradients = len(self.shapes)
        if len(self.dtypes) != gradients:
            yield (
                f"dtypes must have length {gradients} (one for each shape), got {len(self.dtypes)}"
            )
        parts: dict[int, list[tuple[int, int] | None]] = {}
        for bin_ in self.bins:
            for tensor in bin_.tensors:
                parts.setdefault(tensor, []).append(bin_.elements)
        if parts.keys() != set(range(gradients)) or not all(
            mine == [None] or _covers(mine, math.prod(self.shapes[tensor]))
            for tensor, mine in parts.items()
        ):
            yield (
                f"bins must contain each of the {gradients} gradients exactly once, or all its "
                "elements in consecutive pieces"
            )


class Sleeps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sleeps of the background thread, in place of busy waiting.

    `between_tests`: seconds between two tests of a non-blocking collective: the method non-blocking
      (NBCS, section 6.3.2).
    `agree_every`: number of cycles after which all ranks agree on the shortest sleep: the method
      global-sleep (GS, section 6.3.1).
    `rest`: longest sleep in seconds while the rank has nothing to send; a new tensor ends it.
    """

    between_tests: Annotated[float | None, _SLEEP]
    agree_every: Annotated[int | None, at_least(1)]
    rest: Annotated[float | None, _SLEEP] = None

    def relation_faults(self) -> Iterator[str]:
        if self.rest is not None and self.agree_every is not None:
            yield "rest must be null when the ranks agree on the shortest sleep (agree_every)"


class Knobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Horovod's own settings.

    `cycle_time`: `HOROVOD_CYCLE_TIME`, in seconds.
    `fusion_threshold`: `HOROVOD_FUSION_THRESHOLD`, in bytes.
    `cache_capacity`: `HOROVOD_CACHE_CAPACITY`, in tensors.
    """

    cycle_time: Annotated[float, _CYCLE]
    fusion_threshold: Annotated[int, at_least(0)]
    cache_capacity: Annotated[int, at_least(0)]


class MethodPrediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A simulated method.

    `method`: `original`, a method, or a combination such as `core-partition+ordered-bins`.
    `seconds`: step time.
    `background`: share of a core that the background thread uses.
    """

    method: str
    seconds: Annotated[float, AMOUNT]
    background: Annotated[float, AMOUNT]


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
    ranks: Annotated[int, at_least(1)]
    local: Annotated[int, at_least(1)]
    cores: tuple[RankCores, ...] | None
    threads: Uniform | None
    orders: tuple[Order, ...] | None
    sleeps: Sleeps | None
    knobs: Knobs | None
    yield_when_idle: bool
    predictions: tuple[MethodPrediction, ...]
    reasons: tuple[str, ...]

    def relation_faults(self) -> Iterator[str]:
        yield from at_most(self.ranks, "the total number of ranks").of("", self, "local")
        if self.cores is not None and len(self.cores) != self.local:
            yield (
                f"cores must have length {self.local} (one for each local rank), got "
                f"{len(self.cores)}"
            )
        if self.sleeps is not None and self.controller != "mpi":
            yield "sleeps must be null with gloo, which blocks where MPI spins"
        if self.yield_when_idle and self.controller != "mpi":
            yield "yield_when_idle must be false with gloo: it is a setting of Open MPI"


def pieces(bins: Iterable[Bin]) -> dict[int, int]:
    """By tensor, in how many pieces it travels, of those that are cut."""
    return collections.Counter(bin_.tensors[0] for bin_ in bins if bin_.elements)


def core_faults(section: AllreducePlan, cores: int) -> Iterator[str]:
    """A sentence for each core that a node of `cores` cores does not have."""
    for at, rank in each("allreduce.cores", section.cores or ()):
        for field in RankCores.__struct_fields__:
            yield from index(cores, "cores").faults(f"{at}.{field}", *getattr(rank, field))


def _covers(pieces: Sequence[tuple[int, int] | None], elements: int) -> bool:
    end = 0
    for piece in pieces:
        if piece is None or not end == piece[0] < piece[1]:
            return False
        end = piece[1]
    return end == elements
