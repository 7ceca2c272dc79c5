"""A strategy simulated, and changed step by step in search of a shorter step, by chains."""

from __future__ import annotations

import ctypes
import multiprocessing
import pickle
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from ctypes import byref, c_double, c_int32, c_int64
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from dltune.base.errors import UsageError
from dltune.systems.parallelism.model import parallelism_binding as native
from dltune.systems.parallelism.model.problem import Configuration, Nanoseconds, Problem, Strategy
from dltune.systems.parallelism.schemas.operators import Operator

Method = Literal["full", "incremental", "delta"]
METHODS: tuple[Method, ...] = ("full", "incremental", "delta")
Moves = Literal["one", "several", "every"]
MOVES: tuple[Moves, ...] = ("one", "several", "every")
FOREVER = 2**62
NEVER = 2**63 - 1  # of a strategy that moves more pieces than there is room for


@dataclass(frozen=True)
class Totals:
    """`compute`: seconds of all operators' tasks; bytes between devices: forwards, backwards and of
    gradients that are added up; `tasks`: of all kinds; `load`: seconds that the busiest device or
    channel works, which no order of them can be faster than."""

    compute: float
    forward_bytes: int
    backward_bytes: int
    weight_bytes: int
    tasks: int
    load: float

    @property
    def bytes(self) -> int:
        return self.forward_bytes + self.backward_bytes + self.weight_bytes


@dataclass(frozen=True)
class Event:
    """A task as simulated, in nanoseconds. `kind`: of an operator, a piece of an input or gradient
    on its way, or gradients that are added up; `number`: of the operator, edge or weights. `phase`:
    0 forwards, 1 backwards; of "synchronization" 0 in hosts, 1 between them, 2 the update. `place`
    and `part`: the task and 0; the receiving task and the part that it comes from; the set of
    devices and the sender."""

    kind: Literal["operator", "piece", "synchronization"]
    number: int
    phase: int
    place: int
    part: int
    resource: int
    ready: int
    start: int
    end: int
    bytes: int


@dataclass(frozen=True)
class Chain:
    """`temperature`: a strategy longer by that share is accepted with probability 1 / e. `moves`:
    the change of a proposal, one operator (the paper's section 6.2), or several as well; "every"
    tries all configurations of each in turn and keeps changes that shorten the step, until nothing
    does. It ends after `proposals` or, if that is not 0, after `seconds`."""

    seed: int
    temperature: float = 0.005
    proposals: int = FOREVER
    seconds: float = 0.0
    moves: Moves = "several"
    method: Method = "incremental"


@dataclass(frozen=True)
class Walk:
    """The result of a chain. `best` and `current` are strategies, their times nanoseconds.
    `simulated`: proposals that were not refused by their load alone. `settled`: no other
    configuration of any one operator makes the best shorter."""

    best: Strategy
    best_time: int
    current: Strategy
    current_time: int
    proposals: int
    simulated: int
    accepted: int
    settled: bool
    seconds: float


@dataclass(frozen=True)
class Proof:
    """`time`: nanoseconds of the best strategy found; `bound`: no strategy is faster than this.
    `nodes`: beginnings of strategies that were bounded, `leaves`: strategies simulated; `seconds`:
    of the search, after its tables."""

    best: Strategy
    time: int
    bound: int
    nodes: int
    leaves: int
    seconds: float

    @property
    def proven(self) -> bool:
        return self.time == self.bound


class Engine:
    """A problem in the native part. Raises DltuneError when that cannot be built."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._native = native.load()
        about, self._kept = _about(problem)
        self._engine = self._native.dltune_parallelism_new(byref(about))
        weakref.finalize(self, self._native.dltune_parallelism_delete, self._engine)

    def simulate(self, strategy: Strategy) -> int:
        """Nanoseconds of a step; NEVER where there is no room for all that it moves."""
        self._native.dltune_parallelism_set(self._engine, _integers(strategy))
        return self.again()

    def again(self) -> int:
        """The same of the strategy that is there."""
        return int(self._native.dltune_parallelism_simulate(self._engine))

    def change(self, operator: int, choice: int) -> int:
        """One operator's configuration, the tasks of others as they are; nanoseconds of a step."""
        self._native.dltune_parallelism_change(self._engine, operator, choice)
        return self.again()

    def delta(self, operator: int, choice: int) -> int:
        """Return the same as `change`, simulated from the first event on that can differ."""
        return int(self._native.dltune_parallelism_delta(self._engine, operator, choice))

    def events(self, *, of_delta: bool = False) -> list[Event]:
        """All tasks of the strategy that is there in the order in which they became ready;
        `of_delta`: as `delta` simulated them."""
        count = c_int64()
        shown = self._native.dltune_parallelism_timeline(self._engine, not of_delta, byref(count))
        kinds = ("operator", "piece", "synchronization")
        return [
            Event(
                kinds[one.kind],  # type: ignore[arg-type]
                *(one.number, one.back, one.place, one.part, one.resource),
                *(one.ready, one.start, one.end, one.bytes),
            )
            for one in shown[: count.value]
        ]

    def totals(self) -> Totals:
        got = native.Totals()
        self._native.dltune_parallelism_totals(self._engine, byref(got))
        return Totals(
            got.compute / 1e9,
            *(got.forward_bytes, got.backward_bytes, got.weight_bytes, got.tasks),
            got.load / 1e9,
        )

    def walk(self, start: Strategy, chain: Chain) -> Walk:
        """From one strategy on."""
        self._native.dltune_parallelism_set(self._engine, _integers(start))
        about = native.SearchAbout(
            chain.seed,
            *(chain.temperature, chain.seconds, chain.proposals),
            *(MOVES.index(chain.moves), METHODS.index(chain.method)),
        )
        outcome, best = native.Outcome(), (c_int32 * len(start))()
        self._native.dltune_parallelism_search(self._engine, byref(about), byref(outcome), best)
        current = (c_int32 * len(start))()
        self._native.dltune_parallelism_get(self._engine, current)
        return Walk(
            *(tuple(best), outcome.best, tuple(current), outcome.current),
            *(outcome.proposals, outcome.simulated, outcome.accepted, bool(outcome.settled)),
            outcome.seconds,
        )

    def prove(
        self, start: Strategy, combined: int, seconds: float, nodes: int, known: int = 0
    ) -> Proof:
        """Search for a strategy that beats `start`, or a strategy that takes `known` ns, until none
        can, for so many seconds or with so many beginnings of strategies kept. `combined`: as many
        configurations of operators that learn together are considered together. Its tables are of
        every pair of configurations of operators that follow each other."""
        best, found = _integers(start), native.Proof()
        limits = native.Limits(seconds, nodes, known)
        self._native.dltune_parallelism_prove(
            self._engine, combined, byref(limits), byref(found), best
        )
        return Proof(tuple(best), found.best, found.bound, found.nodes, found.leaves, found.seconds)

    def alone(self, operator: int, members: int) -> Nanoseconds:
        """Return the time of each configuration's tasks plus one in `members` of the time that adds
        up its gradients; nothing else is waited for."""
        found = np.empty(len(self.problem.catalogs[operator]), np.int64)
        self._native.dltune_parallelism_alone(
            self._engine, operator, members, _pointer(found, native.LONGS)
        )
        return found

    def added(self, operator: int) -> Nanoseconds:
        """Return for each configuration the least time to add up the gradients after any of its
        backward tasks, if no other operator learned with it."""
        found = np.empty(len(self.problem.catalogs[operator]), np.int64)
        self._native.dltune_parallelism_added(self._engine, operator, _pointer(found, native.LONGS))
        return found

    def moved(self, edge: int, producer: Sequence[int], consumer: Sequence[int]) -> Nanoseconds:
        """Return the times of an edge forwards and backwards for these configurations of the
        operators, shape (producer's, consumer's). Edges are counted by consumers and their
        inputs."""
        found = np.empty((len(producer), len(consumer)), np.int64)
        self._native.dltune_parallelism_moved(
            *(self._engine, edge, len(producer), _integers(producer)),
            *(len(consumer), _integers(consumer), _pointer(found, native.LONGS)),
        )
        return found


def _about(problem: Problem) -> tuple[native.ProblemAbout, list[Any]]:
    graph, topology, ways = problem.graph, problem.topology, problem.routes
    kinds = [kind.name for kind in topology.kinds]
    hosts = list(dict.fromkeys(device.host for device in topology.devices))
    first: dict[int, int] = {}
    divisions: list[Configuration] = []
    for catalog in problem.catalogs:
        if id(catalog) not in first:
            first[id(catalog)] = len(divisions)
            divisions += catalog
    blocks = {name: n for n, name in enumerate({o.block: 0 for o in graph.operators if o.block})}
    rows: dict[int, int] = {}  # the row of each array of times
    forward: list[Nanoseconds] = []
    backward: list[Nanoseconds] = []
    operators = []
    for n, operator in enumerate(graph.operators):
        if id(problem.forward[n]) not in rows:
            rows[id(problem.forward[n])] = sum(len(times) for times in forward)
            forward.append(problem.forward[n].ravel())
            backward.append(problem.backward[n].ravel())
        operators.append(
            native.OperatorAbout(
                (c_int32 * 4)(*_four([d.size for d in operator.dimensions])),
                *(_or_none(operator.parameter), _or_none(operator.weights)),
                *(operator.element, int(operator.gradient), blocks.get(operator.block, -1)),
                first[id(problem.catalogs[n])],
                *(len(problem.catalogs[n]), rows[id(problem.forward[n])]),
            )
        )
    edges = [
        native.Edge(read.operator, n, (native.Region * 4)(*_regions(operator, at)))
        for n, operator in enumerate(graph.operators)
        for at, read in enumerate(operator.inputs)
    ]
    fields = native.ProblemAbout._fields_[10:]
    arrays: list[Any] = [
        _integers([kinds.index(device.kind) for device in topology.devices]),
        _integers([hosts.index(device.host) for device in topology.devices]),
        np.ascontiguousarray(ways.channel, np.int32),
        np.ascontiguousarray(np.rint(ways.latency * 1e9), np.int64),
        np.ascontiguousarray(ways.per_byte * 1e9, np.float64),
        (native.OperatorAbout * len(operators))(*operators),
        (native.Edge * len(edges))(*edges),
        (native.Division * len(divisions))(*map(_division, divisions)),
        np.concatenate(forward),
        np.concatenate(backward),
        (c_double * len(graph.weights))(*(learned.bytes for learned in graph.weights)),
    ]
    about = native.ProblemAbout(
        problem.devices,
        len(kinds),
        problem.devices + len(ways.channels),
        *(len(operators), len(edges), len(graph.weights), len(blocks)),
        problem.update * 1e9,
        *(problem.all_reduce, problem.all_to_all),
        *(_pointer(array, one[1]) for array, one in zip(arrays, fields, strict=True)),
    )
    return about, arrays


def _pointer(array: Any, type_: Any) -> Any:
    if isinstance(array, np.ndarray):
        return array.ctypes.data_as(type_)
    return ctypes.cast(array, type_)


def _division(configuration: Configuration) -> native.Division:
    return native.Division(
        (c_int32 * 4)(*configuration.degrees),
        *(configuration.replicas, configuration.start),
        (c_int32 * 5)(*configuration.order),
        configuration.stride,
    )


def _regions(operator: Operator, at: int) -> list[native.Region]:
    regions = [
        native.Region(region.extent, _or_none(region.of), region.stride, region.start)
        for region in operator.inputs[at].regions
    ]
    return regions + [native.Region(1, -1, 1, 0)] * (4 - len(regions))


def _four(sizes: Sequence[int]) -> list[int]:
    return [*sizes, *[1] * (4 - len(sizes))]


def _or_none(place: int | None) -> int:
    return -1 if place is None else place


def _integers(values: Sequence[int]) -> Any:
    return (c_int32 * len(values))(*values)


Leg = tuple[Strategy, Chain]
PATIENCE = 10.0  # seconds for a scheduler to answer


class Workers(Protocol):
    """`count`: how many chains walk at the same time."""

    count: int

    def walk(self, legs: Sequence[Leg]) -> list[Walk]: ...


@contextmanager
def workers(engine: Engine, processes: int, scheduler: str | None) -> Iterator[Workers]:
    """`engine`: of the problem; chains that walk here walk in it. `scheduler`: the address of a
    dask cluster's. Raises UsageError where it does not answer, or dask is not installed.

    Chains walk in this process, in several processes, or on the workers of a dask cluster.
    """
    if scheduler is not None:
        with _cluster(scheduler) as client:
            yield _Dask(client, engine.problem)
    elif processes > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            processes, context, _bring, (pickle.dumps(engine.problem),)
        ) as pool:
            yield _Pool(pool, processes)
    else:
        yield Here(engine)


class Here:
    count = 1

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def walk(self, legs: Sequence[Leg]) -> list[Walk]:
        return [self._engine.walk(*leg) for leg in legs]


class _Pool:
    def __init__(self, pool: ProcessPoolExecutor, count: int) -> None:
        self._pool, self.count = pool, count

    def walk(self, legs: Sequence[Leg]) -> list[Walk]:
        return list(self._pool.map(_walk, legs))


class _Dask:
    def __init__(self, client: Any, problem: Problem) -> None:
        self._client = client
        self.count = sum(client.nthreads().values())
        self._problem = client.scatter(pickle.dumps(problem), broadcast=True, hash=False)

    def walk(self, legs: Sequence[Leg]) -> list[Walk]:
        futures = [self._client.submit(_walk_there, self._problem, leg, pure=False) for leg in legs]
        return list(self._client.gather(futures))


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    try:
        import distributed
    except ImportError:
        raise UsageError(
            "--scheduler requires the package distributed of dask, which is not installed",
            remedy="pip install 'dltune[cluster]'",
        ) from None
    connect: Any = distributed.Client
    try:
        client = connect(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the scheduler {address} does not answer: {error}",
            remedy="start a scheduler with `dask scheduler` and workers with `dask worker`",
        ) from None
    with client:
        if not client.nthreads():
            raise UsageError(
                f"the scheduler {address} has no workers", remedy="start workers with `dask worker`"
            )
        yield client


_engine: Engine | None = None


def _bring(pickled: bytes) -> None:
    global _engine
    _engine = Engine(pickle.loads(pickled))


def _walk(leg: Leg) -> Walk:
    assert _engine is not None
    return _engine.walk(*leg)


def _walk_there(pickled: bytes, leg: Leg) -> Walk:
    # a worker has several threads, an engine one caller: each leg has its own
    return Engine(pickle.loads(pickled)).walk(*leg)
