"""Where chains walk: in this process, in several, or on the workers of a dask cluster."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.engine import Chain, Engine, Walk
from dltune.systems.parallelism.model.problem import Problem, Strategy

Leg = tuple[Strategy, Chain]
PATIENCE = 10.0  # seconds for a scheduler to answer


class Workers(Protocol):
    """`count`: how many chains walk at the same time."""

    count: int

    def walk(self, legs: Sequence[Leg]) -> list[Walk]: ...


@contextmanager
def workers(engine: Engine, processes: int, scheduler: str | None) -> Iterator[Workers]:
    """`engine`: of the problem; chains that walk here walk in it. `scheduler`: the address of a
    dask cluster's. Raises UsageError where it does not answer, or dask is not installed."""
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
