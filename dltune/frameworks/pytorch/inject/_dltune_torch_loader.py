"""Inside the job's Python: workers of PyTorch's DataLoaders, and the batches they prepare ahead.

A worker has separate random numbers, counters and positions in open files, so a dataset that needs
any of them stays in the process that trains. A child of that process tests this before a loader's
first batch: the child prepares that batch twice, as a worker would, and reports the result.
"""

from __future__ import annotations

import copy
import functools
import gc
import io
import json
import multiprocessing
import os
import pickle
import random
import resource
import select
import signal
import socket
import stat
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _dltune_report import Hooks, Report

_MODULE = "torch.utils.data"
_PATIENCE = 10.0  # time limit of the first batch, in seconds
_REACH = 200_000  # objects of a dataset that are searched
_AHEAD = 2  # batches that a worker prepares ahead if a script does not set it
_SHARED = "/dev/shm"
# modules whose open files a process and its children cannot share
_FILES = frozenset({"h5py", "lmdb", "netCDF4", "sqlite3", "tables"})


def input_workers(report: Report) -> Hooks:
    """Value: number of workers for a loader to which the script gave none."""
    count = int(report.value)
    did = f"set {count} workers in each of {{count}} DataLoaders"

    def fitting(loader: Any) -> dict[str, Any]:
        if loader.num_workers:
            raise _Left(f"the script sets num_workers={loader.num_workers}")
        if isinstance(loader.dataset, sys.modules[_MODULE].IterableDataset):
            raise _Left("each worker would read the whole IterableDataset")
        _try_first_batch(loader, count, _AHEAD)
        # another context than fork wants a main module that can be imported
        context = loader.multiprocessing_context or multiprocessing.get_context("fork")
        return {"num_workers": count, "prefetch_factor": _AHEAD, "multiprocessing_context": context}

    def change(data: Any) -> None:
        within = {_WORKERS: _asks_later(getattr(data.dataloader, _WORKERS))}
        started = _started_later(getattr(data.dataloader, _ALONE))
        _change_loaders(data, report, did, fitting, within, started)

    yield _MODULE, change


def input_prefetch(report: Report) -> Hooks:
    """Value: number of batches that each worker prepares ahead."""
    if not report.value.isdecimal():
        return
    ahead = int(report.value)
    did = f"set prefetching of {ahead} batches per worker in {{count}} DataLoaders"

    def fitting(loader: Any) -> dict[str, Any]:
        if not loader.num_workers:
            raise _Left("it has no workers")
        if loader.prefetch_factor != _AHEAD:
            raise _Left(f"the script sets prefetch_factor={loader.prefetch_factor}")
        if isinstance(loader.dataset, sys.modules[_MODULE].IterableDataset):
            raise _Left("dltune cannot test the workers of an IterableDataset")
        _try_first_batch(loader, loader.num_workers, ahead, drawing=True)
        return {"prefetch_factor": ahead}

    yield _MODULE, lambda data: _change_loaders(data, report, did, fitting, {})


class _Left(Exception):
    """Reason why a loader is left as it is."""


# PyTorch's iterators
_WORKERS, _ALONE = "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"
_DRAWS = "it draws random numbers, and a worker would draw different numbers"


def _change_loaders(
    data: Any,
    report: Report,
    did: str,
    fitting: Callable[[Any], dict[str, Any]],
    within: dict[str, Any],
    started: Callable[[Any, Callable[[Any], Any]], Any] | None = None,
) -> None:
    """Has loaders make their iterators with other attributes, and a script find those of its own.

    `fitting`, which is asked once for each loader, has the attributes, or raises. `within`:
    what the loaders' module has meanwhile. `started`: the iterator of a loader without workers, for
    which a function makes the one to be used, or gives None."""
    plain = data.DataLoader._get_iterator
    known: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()

    def examine(loader: Any, own: Any) -> None:
        known[own] = {}
        report.did = did
        try:
            changes = fitting(loader)
        except _Left as why:
            report.left(f"a {type(loader).__name__} of {type(loader.dataset).__name__}", str(why))
        else:
            with _changed(loader, changes):
                known[own] = changes
            report.acted()

    examine_harmless = report.harmless(examine, "a DataLoader")
    starting = threading.Lock()

    def changes_of(loader: Any, own: Any) -> dict[str, Any]:
        try:
            if own not in known:
                examine_harmless(loader, own)
            return known[own]
        except (KeyError, TypeError):  # it cannot be referred to weakly
            return {}

    @functools.wraps(plain)
    def get_iterator(loader: Any) -> Any:
        own = loader.loader if isinstance(loader, _View) else loader

        def start(view: Any) -> Any:
            changes = changes_of(loader, own)
            if not changes or multiprocessing.current_process().daemon:
                return None
            put_back = _random_state(loader)
            try:
                with _changed(view, changes), starting, _changed(data.dataloader, within):
                    return plain(view)
            except Exception as error:  # no more processes or threads are available
                put_back()
                known[own] = {}
                report.left("the rest of a DataLoader", f"{type(error).__name__}: {error}")
                return None

        if started is None or loader.num_workers:
            made = start(loader)  # an iterator over nothing is false
            return plain(loader) if made is None else made
        return started(loader, start)

    data.DataLoader._get_iterator = get_iterator


class _View:
    """A loader with some attributes replaced."""

    def __init__(self, loader: Any, values: dict[str, Any]) -> None:
        self.__dict__.update(values, loader=loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def _random_state(loader: Any) -> Callable[[], None]:
    """Return a function to restore the generators that an iterator's start draws from."""
    torch = sys.modules["torch"]
    state = torch.get_rng_state()
    own = loader.generator.get_state() if loader.generator is not None else None

    def put_back() -> None:
        torch.set_rng_state(state)
        if own is not None:
            loader.generator.set_state(own)

    return put_back


def _started_later(base: Any) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """Iterators whose workers are started for the first batch, as a script can change its dataset
    until then. A sampler is asked, and a seed is drawn, where the iterator is made, and once."""

    class Iter(base):  # type: ignore[misc]
        _sampler_iter: Any
        _profile_name: str

        def __init__(self, loader: Any, start: Callable[[Any], Any]) -> None:
            generator = _generator(loader)
            super().__init__(loader)
            values = {"_index_sampler": self._sampler_iter, "generator": generator}
            self._start: Callable[[], Any] | None = lambda: start(_View(loader, values))
            self._batches: Any = None  # the workers' batches

        def _next_data(self) -> Any:
            if self._start is not None:
                start, self._start = self._start, None
                self._batches = start()
                if self._batches is not None:
                    self._profile_name = self._batches._profile_name
            return super()._next_data() if self._batches is None else self._batches._next_data()

    Iter.__name__ = Iter.__qualname__ = base.__name__  # in profiles, too
    return Iter


def _generator(loader: Any) -> Any:
    """Return a generator that draws the numbers that the loader's will draw next."""
    torch, own = sys.modules["torch"], loader.generator
    with suppress(Exception):  # of another device
        other = torch.Generator()
        return other.set_state(torch.get_rng_state() if own is None else own.get_state())
    return own


def _asks_later(base: Any) -> Any:
    """Iterators over workers' batches that ask the sampler for nothing while they are made: an
    error from it must reach the script.

    Batches are copied out of shared memory: each tensor in there keeps a file open.
    """

    class Iter(base):  # type: ignore[misc]
        _asked = False
        _pin_memory: bool
        _prefetch_factor: Any

        def _reset(self, loader: Any, first_iter: bool = False) -> None:
            ahead, self._prefetch_factor = self._prefetch_factor, 0
            try:
                super()._reset(loader, first_iter)
            finally:
                self._prefetch_factor = ahead

        def _next_data(self) -> Any:
            if not self._asked:
                self._asked = True
                for _ in range(self._prefetch_factor * self._num_workers):
                    self._try_put_index()
            batch = super()._next_data()
            if not self._pin_memory:  # pinning has copied them
                with suppress(Exception):
                    batch = copy.deepcopy(batch)
            return batch

    Iter.__name__ = Iter.__qualname__ = base.__name__  # in profiles, too
    return Iter


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
        for name in reversed(before):  # a context can be set only with workers
            setattr(loader, name, before[name])


def _try_first_batch(loader: Any, workers: int, ahead: int, *, drawing: bool = False) -> None:
    """Raise _Left if workers cannot prepare a loader's batches as this process would.

    `drawing`: random numbers are drawn in workers in any case.
    """
    if multiprocessing.current_process().daemon:
        raise _Left("its process must not start child processes")
    sources = () if drawing else _sources()
    for one in _within(loader.dataset, loader.collate_fn):
        if isinstance(one, sources):
            raise _Left(_DRAWS)
        if _open(one):
            raise _Left(f"it has an open {type(one).__name__}, which processes cannot share")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(_tried_apart(loader, drawing)).encode())
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
        raise _Left(f"a test worker did not finish the first batch within {_PATIENCE:.0f} s")
    if not answer:
        raise _Left("a test worker crashed at the first batch")
    why, size, tensors = json.loads(answer)
    if why is not None:
        raise _Left(why)
    batches = workers * ahead + 2
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if size * batches * ranks > _free() / 2:
        raise _Left(f"{_SHARED} has not enough free space for the workers' batches")
    if tensors * batches > resource.getrlimit(resource.RLIMIT_NOFILE)[0] / 2:
        raise _Left(
            f"its {tensors} tensors per batch need more open files than the limit (ulimit -n) "
            "allows"
        )


def _open(one: object) -> bool:
    if isinstance(one, io.FileIO):
        return not one.closed
    if isinstance(one, socket.socket | connection._ConnectionBase):
        return True
    return type(one).__module__.partition(".")[0] in _FILES


def _places() -> dict[int, int]:
    """Return this process's position in each open read-only file, by the file's number."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError, KeyError, ValueError):
            number = int(path.name)
            if stat.S_ISREG(os.fstat(number).st_mode):
                lines = Path(f"/proc/self/fdinfo/{number}").read_text().splitlines()
                told = dict(line.split(":", 1) for line in lines if ":" in line)
                if int(told["flags"], 8) & os.O_ACCMODE == os.O_RDONLY:
                    found[number] = int(told["pos"])
    return found


def _free() -> int:
    """Return the bytes of memory that processes can share."""
    try:
        there = os.statvfs(_SHARED)
    except OSError:
        return 0
    return there.f_bavail * there.f_frsize


def _tried_apart(loader: Any, drawing: bool) -> tuple[str | None, int, int]:
    """In a child, which shares its places in open files with the job: as `_tried`, with separate
    places."""
    places = _places()
    try:
        for number, place in places.items():
            own = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(own, place, os.SEEK_SET)
            os.dup2(own, number, inheritable=False)
            os.close(own)
    except OSError as error:
        return f"a test worker cannot open the job's files again: {error}", 0, 0
    answer = _tried(loader, drawing)
    now = _places()
    if answer[0] is None and any(now.get(one, place) != place for one, place in places.items()):
        return (
            "it reads from a file that the job opened before, and processes cannot share its "
            "position",
            0,
            0,
        )
    return answer


def _tried(loader: Any, drawing: bool) -> tuple[str | None, int, int]:
    """In a child: why a worker cannot, and the first batch's tensors: bytes and number."""
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
            return "it has no batches", 0, 0
        before = _drawn()
        next(sampler, None)
        if _drawn() != before:
            return (
                "its sampler draws random numbers for each batch, and workers would change their "
                "order",
                0,
                0,
            )
        if loader.worker_init_fn:
            loader.worker_init_fn(0)
        before = _drawn()
        fetcher = _DatasetKind.create_fetcher(
            loader._dataset_kind,
            loader.dataset,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
        )
        batch = _Content(fetcher.fetch(first))
        if not drawing:
            if _drawn() != before:
                return _DRAWS, 0, 0
            if not batch.same_as(_Content(fetcher.fetch(first))):
                return (
                    "its batches differ each time they are read, so workers would change them",
                    0,
                    0,
                )
    except Exception as error:
        why = f"a test worker failed at the first batch: {type(error).__name__}: {error}"
        return why[:500], 0, 0
    stored = (tensor.untyped_storage() for tensor in batch.tensors)
    storages = {one.data_ptr(): one.nbytes() for one in stored}
    return None, sum(storages.values()), len(storages)


class _Content(pickle.Pickler):
    """What a worker sends of a batch: its tensors, and all else by bytes."""

    def __init__(self, batch: object) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Any] = []
        self.dump(batch)

    def reducer_override(self, one: object) -> Any:
        if not isinstance(one, sys.modules["torch"].Tensor):
            return NotImplemented
        if one.requires_grad and not one.is_leaf:
            raise ValueError("a tensor of the batch requires a gradient")
        self.tensors.append(one)
        return int, (len(self.tensors),)

    def same_as(self, other: _Content) -> bool:
        return (
            self._bytes.getvalue() == other._bytes.getvalue()
            and len(self.tensors) == len(other.tensors)
            and all(map(_equal, self.tensors, other.tensors))
        )


def _equal(one: Any, other: Any) -> bool:
    """Bit for bit, so that what is not a number equals itself."""
    torch = sys.modules["torch"]
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    one, other = (each.detach().reshape(-1).view(torch.uint8) for each in (one, other))
    return bool(torch.equal(one, other))


def _drawn() -> tuple[object, ...]:
    """The state of all sources of random numbers that a process has one of."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    legacy = numpy.random.get_state() if numpy else ()
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        *(part.tolist() if hasattr(part, "tolist") else part for part in legacy),
    )


def _sources() -> tuple[Any, ...]:
    """What a dataset, or what collates it, may have to draw random numbers from."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    sources: tuple[Any, ...] = (torch.Generator, random.Random)
    if numpy:
        sources += (numpy.random.Generator, numpy.random.RandomState)
    return sources


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
