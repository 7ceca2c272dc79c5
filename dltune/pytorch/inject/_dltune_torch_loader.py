"""Inside the job's Python: who prepares the batches of PyTorch's DataLoaders, and how far ahead.

A worker draws random numbers of its own, so that a dataset that draws some stays in the process
that trains. This is seen in a child of it, before a loader's first batch: the child prepares that
batch, as a worker would, and tells what it met.
"""

from __future__ import annotations

import functools
import gc
import json
import multiprocessing
import os
import random
import select
import signal
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _dltune_report import Hooks, Report

_MODULE = "torch.utils.data"
_PATIENCE = 10.0  # seconds that the first batch may take
_REACH = 200_000  # objects of a dataset that are looked through
_AHEAD = 2  # batches that a worker prepares ahead where a script does not tell it
_SHARED = "/dev/shm"


def workers(report: Report) -> Hooks:
    """Value: how many prepare the batches of a loader that the script gave none."""
    count = int(report.value)
    report.did = f"{{count}} DataLoaders have their batches prepared by {count} workers each"

    def fitting(loader: Any) -> dict[str, Any]:
        if loader.num_workers:
            raise _Left(f"the script gives it {loader.num_workers} workers")
        if isinstance(loader.dataset, sys.modules[_MODULE].IterableDataset):
            raise _Left("each worker would read an IterableDataset whole")
        _try_first_batch(loader, count, _AHEAD)
        # another context than fork wants a main module that can be imported
        context = loader.multiprocessing_context or "fork"
        return {"num_workers": count, "prefetch_factor": _AHEAD, "multiprocessing_context": context}

    yield _MODULE, lambda data: _change_loaders(data, report, fitting)


def prefetch(report: Report) -> Hooks:
    """Value: how many batches each worker prepares ahead."""
    if not report.value.isdecimal():
        return
    ahead = int(report.value)
    report.did = f"workers of {{count}} DataLoaders prepare {ahead} batches ahead"

    def fitting(loader: Any) -> dict[str, Any]:
        if not loader.num_workers:
            raise _Left("it has no workers that could prepare batches ahead")
        if loader.prefetch_factor != _AHEAD:
            raise _Left(f"the script tells it {loader.prefetch_factor} batches")
        _try_first_batch(loader, loader.num_workers, ahead, drawing=True)
        return {"prefetch_factor": ahead}

    yield _MODULE, lambda data: _change_loaders(data, report, fitting)


class _Left(Exception):
    """Why a loader is left as it is."""


def _change_loaders(data: Any, report: Report, fitting: Callable[[Any], dict[str, Any]]) -> None:
    """Has loaders make their iterators with other attributes, and a script find those of its own.

    `fitting`, which is asked once for each loader, has the attributes, or raises."""
    plain = data.DataLoader._get_iterator
    known: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()

    def examine(loader: Any) -> None:
        known[loader] = {}
        try:
            changes = fitting(loader)
        except _Left as why:
            report.left(f"a {type(loader).__name__} of {type(loader.dataset).__name__}", str(why))
        else:
            with _changed(loader, changes):
                known[loader] = changes
            report.acted()

    examine_harmless = report.harmless(examine, "a DataLoader")

    @functools.wraps(plain)
    def get_iterator(loader: Any) -> Any:
        if loader not in known:
            examine_harmless(loader)
        try:
            changes = known[loader]
        except (KeyError, TypeError):  # it cannot be referred to weakly
            changes = {}
        if changes:
            try:
                with _changed(loader, changes):
                    return plain(loader)
            except OSError as error:  # no process more may be had
                known[loader] = {}
                report.left("a DataLoader, from now on", str(error))
        return plain(loader)

    data.DataLoader._get_iterator = get_iterator


@contextmanager
def _changed(loader: Any, values: dict[str, Any]) -> Iterator[None]:
    """Attributes of a loader for a while."""
    before: dict[str, Any] = {}
    try:
        for name, value in values.items():
            before[name] = getattr(loader, name)
            setattr(loader, name, value)
        yield
    finally:
        for name in reversed(before):  # a context may be told where there are workers
            setattr(loader, name, before[name])


def _try_first_batch(loader: Any, workers: int, ahead: int, *, drawing: bool = False) -> None:
    """Raises _Left where workers cannot prepare a loader's batches as this process would.

    `drawing`: random numbers are drawn in workers in any case.
    """
    if multiprocessing.current_process().daemon:
        raise _Left("it is in a process that may start none")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(_tried(loader, drawing)).encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], _PATIENCE)
        answer = os.read(read, select.PIPE_BUF) if ready else b""
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not ready:
        raise _Left(f"a child that prepares its first batch is not done after {_PATIENCE:.0f} s")
    if not answer:
        raise _Left("a child that prepares its first batch dies")
    why, size = json.loads(answer)
    if why is not None:
        raise _Left(why)
    if size * (workers * ahead + 2) > _free() / 2:
        raise _Left(f"{_SHARED}, through which batches come, has no room for them")


def _free() -> int:
    """Bytes of memory that processes may share."""
    try:
        there = os.statvfs(_SHARED)
    except OSError:
        return 0
    return there.f_bavail * there.f_frsize


def _tried(loader: Any, drawing: bool) -> tuple[str | None, int]:
    """In a child: why a worker cannot, and the bytes of the first batch's tensors."""
    try:
        import torch
        from torch.utils.data import _DatasetKind

        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        torch.set_num_threads(1)
        sampler = iter(loader._index_sampler)
        first = next(sampler, None)
        if first is None:
            return "it has no batch", 0
        if loader.worker_init_fn:
            loader.worker_init_fn(0)
        before = _drawn()
        next(sampler, None)
        fetcher = _DatasetKind.create_fetcher(
            loader._dataset_kind,
            loader.dataset,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
        )
        batch = fetcher.fetch(first)
        if not drawing and (_drawn() != before or _draws(loader)):
            return "it draws random numbers, and a worker would draw others", 0
        size = sum(_storages(batch).values())
        ForkingPickler.dumps(batch)
    except Exception as error:
        return f"a child cannot prepare its first batch: {type(error).__name__}: {error}"[:500], 0
    return None, size


def _drawn() -> tuple[object, ...]:
    """The state of all sources of random numbers that a process has one of."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    legacy = numpy.random.get_state() if numpy else ()
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        *(part.tolist() if hasattr(part, "tolist") else part for part in legacy),
    )


def _draws(loader: Any) -> bool:
    """Whether a dataset, or what collates it, has a source of random numbers of its own."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    sources: tuple[Any, ...] = (torch.Generator, random.Random)
    if numpy:
        sources += (numpy.random.Generator, numpy.random.RandomState)
    return any(isinstance(one, sources) for one in _within(loader.dataset, loader.collate_fn))


def _storages(batch: Any) -> dict[int, int]:
    """Bytes of each storage of a batch, by where it is."""
    torch = sys.modules["torch"]
    tensors = [one for one in _within(batch) if isinstance(one, torch.Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors if not tensor.is_sparse]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _within(*roots: object) -> Iterator[object]:
    """All that is held by these, and they themselves; of classes, modules and functions only what
    a function closes over. The nearest `_REACH` of them."""
    reached = {id(root) for root in roots}
    left = deque(roots)
    while left:
        one = left.popleft()
        yield one
        if isinstance(one, FunctionType):
            inner: list[Any] = [one.__closure__, one.__defaults__, one.__kwdefaults__]
        elif isinstance(one, type | ModuleType):
            continue
        else:
            inner = gc.get_referents(one)
        for each in inner:
            if id(each) not in reached and len(reached) < _REACH:
                reached.add(id(each))
                left.append(each)
