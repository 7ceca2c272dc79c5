"""Inside a rank of a Horovod job: the orders of the plan's section on Horovod, and their outcome.

Only the standard library is used at import; stock Horovod is wrapped, not changed: `hvd.init()`
gets its settings and cores, and a call that reduces gradients the plan's bins.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

_TASKS = Path("/proc/self/task")
_LONGEST_ERROR = 400
# arguments of Horovod 0.28's calls to reduce gradients that the plan's way must know
_ASKED = {
    *("name", "op", "device_dense", "device_sparse", "compression", "sparse_as_dense"),
    *("gradient_predivide_factor", "groups", "process_set"),
}
# for bins that stay as they are planned, instead of growing by what else is ready
_BINS_ALONE = {"HOROVOD_DISABLE_GROUP_FUSION": "1"}
# sched_setattr and sched_getattr; struct sched_attr: size, policy, flags, nice, ..., runtime (ns)
_SCHEDULING = {"x86_64": (314, 315), "aarch64": (274, 275)}
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_SHORTEST_SLICE = 100_000

# how long a background thread rests that has nothing to send (`horovod/preload/rest.h`)
_REST = "DLTUNE_REST"

Tell = Callable[[dict[str, Any]], Any]
# places in the list of dense gradients; of one that travels in pieces, from which element to which
_Bin = tuple[list[int], list[int] | None]


def start(
    answer: dict[str, Any], interpreter: Any
) -> tuple[
    list[tuple[str, Callable[[ModuleType], None]]], dict[str, Callable[[BaseException], None]]
]:
    """Return modules of the job and the functions to call after their import, or with the error."""
    rank = Rank(answer.get("horovod", {}), interpreter.bound, interpreter.tell)
    hooks = [
        ("horovod.common.basics", rank.wrap_init),
        ("horovod.tensorflow", rank.wrap_reduction),
        ("horovod.runner.launch", end_quietly),
    ]
    return hooks, dict.fromkeys(("horovod", "horovod.tensorflow"), rank.fail)


class Rank:
    """The orders of this rank: `orders` is the answer's part on Horovod, {} without one."""

    def __init__(self, orders: dict[str, Any], bound: Sequence[int], tell: Tell) -> None:
        self._orders = orders
        self._bound = bound
        self._tell = tell

    def wrap_init(self, basics: ModuleType) -> None:
        """Wrap `init` once horovod.common.basics is imported, which every framework's `init`
        uses."""
        cls = basics.HorovodBasics
        init = cls.init

        @functools.wraps(init)
        def wrapped(hvd: Any, *arguments: Any, **options: Any) -> Any:
            if hvd.is_initialized():
                return init(hvd, *arguments, **options)
            overridden = self._set_environment()
            library: Any = ctypes.CDLL(None)
            if not self._orders.get("sleeps", True) and hasattr(library, "dltune_no_sleeps"):
                library.dltune_no_sleeps()  # ranks on other nodes do without
            if _REST in os.environ and _process_sets(*arguments, **options):
                # members would wait for ranks that rest
                library.dltune_no_rests()
                overridden[_REST] = os.environ.pop(_REST)
            before = _threads()
            with self._on_background_cores():
                result = init(hvd, *arguments, **options)
            added = sorted(_threads() - before, key=_age)
            self._report(hvd, added, overridden, self._place(added))
            self._tell_of_errors()
            return result

        cls.init = wrapped

    def wrap_reduction(self, hvd: Any) -> None:
        """Once horovod.tensorflow is imported: calls that the plan knows submit its bins."""
        import inspect  # not in every interpreter

        orders = self._orders.get("orders")
        if not orders:
            return
        make = getattr(hvd, "_make_allreduce_grads_fn", None)
        if make is None or not inspect.signature(make).parameters.keys() >= _ASKED:
            version = sys.modules["horovod"].__version__
            why = f"Horovod {version} reduces gradients differently than Horovod 0.28"
            self._tell_of_reduction(shapes=[], dtypes=[], bins=None, why=why)
            return

        @functools.wraps(make)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            asked = inspect.signature(make).bind(*arguments, **options).arguments
            return _reduction(
                hvd, make(*arguments, **options), orders, self._tell_of_reduction, asked
            )

        hvd._make_allreduce_grads_fn = wrapped

    def fail(self, error: BaseException) -> None:
        """Horovod could not be imported."""
        self._tell({"type": "no_horovod", "pid": os.getpid(), "reason": _in_words(error)})

    def _set_environment(self) -> dict[str, str]:
        """The plan's settings into the environment; those that had another value there."""
        chosen = dict(self._orders.get("settings", {}))
        if self._orders.get("orders"):
            chosen |= _BINS_ALONE
        overridden = {
            name: os.environ[name]
            for name, value in chosen.items()
            if os.environ.get(name, value) != value
        }
        os.environ.update(chosen)
        if self._orders.get("cores") and "HOROVOD_THREAD_AFFINITY" in os.environ:
            overridden["HOROVOD_THREAD_AFFINITY"] = os.environ.pop("HOROVOD_THREAD_AFFINITY")
        return overridden

    @contextlib.contextmanager
    def _on_background_cores(self) -> Iterator[None]:
        """New threads inherit the cores of the one that makes them."""
        cores = self._orders.get("cores")
        if not cores:
            yield
            return
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores["background"])
        try:
            yield
        finally:
            os.sched_setaffinity(0, mine)

    def _place(self, added: Sequence[int]) -> float | None:
        """Helpers to their own cores; MPI may have moved any of them meanwhile.

        Threads that sleep while they wait get the shortest slice, so that they go before one that
        computes there when they wake up (from Linux 6.12 on). The background thread's, in seconds.
        """
        cores = self._orders.get("cores")
        if not cores:
            return None
        for position, thread in enumerate(added):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores["helpers" if position else "background"])
        slices = [_shorten_slice(thread) for thread in added if cores["first"]]
        return slices[0] if slices else None

    def _report(
        self, hvd: Any, added: Sequence[int], overridden: dict[str, str], slice_: float | None
    ) -> None:
        prefixes = ("HOROVOD_", "OMPI_MCA_")
        self._tell(
            {
                "type": "horovod",
                "pid": os.getpid(),
                "rank": hvd.rank(),
                "size": hvd.size(),
                "local_rank": hvd.local_rank(),
                "local_size": hvd.local_size(),
                "controller": "mpi" if hvd.mpi_enabled() else "gloo",
                "version": sys.modules["horovod"].__version__,
                "mpi": _mpi_version() if hvd.mpi_enabled() else None,
                "threads": added,
                "bound": sorted(self._bound),
                "settings": {k: v for k, v in os.environ.items() if k.startswith(prefixes)},
                "overridden": overridden,
                "slice": slice_,
            }
        )

    def _tell_of_reduction(self, **what: Any) -> None:
        self._tell({"type": "reduction", "pid": os.getpid(), **what})

    def _tell_of_errors(self) -> None:
        """Report an error that ends this rank before its end reaches the other ranks."""
        hook, owner = sys.excepthook, os.getpid()

        def heard(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if os.getpid() == owner:
                at = time.monotonic()
                words = _in_words(error)
                self._tell({"type": "rank_failed", "pid": owner, "at": at, "error": words})
            hook(kind, error, trace)

        sys.excepthook = heard


def end_quietly(launch: Any) -> None:
    """Keep a launcher that a signal has asked to end its ranks from ending with a traceback about
    it.

    Once horovod.runner.launch is imported. With gloo it takes the signals itself, and keeps an
    event of it; with MPI an interrupt becomes the exit code of its mpirun.
    """
    asked: list[Callable[[], bool]] = []
    gloo_run: Any = sys.modules[launch.gloo_run.__module__]
    register = gloo_run.register_shutdown_event

    @functools.wraps(register)
    def registered(*arguments: Any, **options: Any) -> Any:
        ending = register(*arguments, **options)
        asked.append(ending.is_set)
        return ending

    gloo_run.register_shutdown_event = registered

    def interrupted(number: int, frame: FrameType | None) -> None:
        asked.append(lambda: True)
        signal.default_int_handler(number, frame)

    with contextlib.suppress(ValueError):  # from another thread than the main one
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupted)
    hook = sys.excepthook

    def heard(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        expected = isinstance(error, (RuntimeError, KeyboardInterrupt))
        if not (expected and any(ask() for ask in asked)):
            hook(kind, error, trace)

    sys.excepthook = heard


def _reduction(
    hvd: Any,
    plain: Callable[..., Any],
    orders: Sequence[dict[str, Any]],
    tell: Callable[..., None],
    asked: dict[str, Any],
) -> Any:
    """Horovod's function that reduces a list of gradients, or the plan's where it knows the list.

    `plain`: what Horovod's `_make_allreduce_grads_fn` gives when it is `asked` so, by the names of
    its parameters.
    """
    import tensorflow as tf

    op, groups, process_set = asked["op"], asked["groups"], asked["process_set"]
    factor = asked["gradient_predivide_factor"] if op == hvd.Average else 1.0

    def planned(
        gradients: list[Any], bins: list[_Bin], places: list[int], generic: bool
    ) -> list[Any]:
        reduced = list(gradients)
        pieces: dict[int, list[Any]] = {}
        before: list[Any] = []
        with tf.name_scope(asked["name"] + "_Allreduce"):
            for number, (members, elements) in enumerate(bins):
                mine = [gradients[places[member]] for member in members]
                if elements:
                    mine = [tf.reshape(mine[0], [-1])[slice(*elements)]]
                # submitted once the previous bin has come back, else ops that are ready at one time
                # are run, and bins submitted, in any order
                with tf.control_dependencies(before):
                    results = hvd._grouped_allreduce_cond(
                        mine,
                        device_dense=asked["device_dense"],
                        device_sparse=asked["device_sparse"],
                        compression=asked["compression"],
                        op=op,
                        prescale_factor=1.0 / factor,
                        postscale_factor=factor,
                        process_set=process_set,
                        name=f"grad_{number}" if generic else None,
                        ignore_name_scope=generic,
                    )
                for member, result in zip(members, results, strict=True):
                    reduced[places[member]] = result
                    if elements:
                        pieces.setdefault(places[member], []).append(result)
                before = results
            for place, parts in pieces.items():
                reduced[place] = tf.reshape(tf.concat(parts, 0), gradients[place].shape)
            for place, gradient in enumerate(gradients):
                if isinstance(gradient, tf.IndexedSlices):
                    reduced[place] = plain([gradient], None, False)[0]
        return reduced

    def reduce(gradients: Sequence[Any], variables: Any = None, generic: bool = False) -> Any:
        if asked["sparse_as_dense"]:
            gradients = [
                tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients
            ]
        places = [
            place
            for place, gradient in enumerate(gradients)
            if gradient is not None and not isinstance(gradient, tf.IndexedSlices)
        ]
        dense = [gradients[place] for place in places]
        shapes = [None if g.shape.rank is None else g.shape.as_list() for g in dense]
        dtypes = [g.dtype.name for g in dense]
        bins, why = _bins(orders, shapes, dtypes)
        if groups is not None:
            bins, why = None, f"the script sets groups itself (groups={_short(groups)})"
        elif op == hvd.Adasum:
            bins, why = None, "Adasum reduces each gradient separately"
        elif process_set is not hvd.global_process_set:
            bins, why = None, "the call uses a process set instead of all ranks"
        tell(shapes=shapes, dtypes=dtypes, bins=None if bins is None else len(bins), why=why)
        if bins is None:
            return plain(gradients, variables, generic)
        return planned(list(gradients), bins, places, generic)

    # a script's tf.function would have AutoGraph rewrite it
    whole = tf.autograph.experimental.do_not_convert(reduce)
    return hvd._make_subgraph(whole) if hvd._executing_eagerly() else whole


def _bins(
    orders: Sequence[dict[str, Any]], shapes: Sequence[Any], dtypes: Sequence[str]
) -> tuple[list[_Bin] | None, str]:
    """The bins of the order for gradients like these, or None and why there are none."""
    for order in orders:
        if order["shapes"] == list(shapes) and order["dtypes"] == list(dtypes):
            return order["bins"], ""
    if any(shape is None or None in shape for shape in shapes):
        return None, "some shapes of its gradients are unknown before it runs"
    known = {len(order["shapes"]) for order in orders}
    if len(shapes) not in known:
        planned = " or ".join(map(str, sorted(known)))
        return None, f"it reduces {len(shapes)} dense gradients, but the plan has {planned}"
    order = next(order for order in orders if len(order["shapes"]) == len(shapes))
    place = next(
        i
        for i, mine in enumerate(zip(shapes, dtypes, strict=True))
        if mine != (order["shapes"][i], order["dtypes"][i])
    )
    mine, theirs = f"{dtypes[place]}{shapes[place]}", order["shapes"][place]
    return None, f"gradient {place} is {mine}, but {order['dtypes'][place]}{theirs} in the plan"


def _process_sets(comm: Any = None, process_sets: Any = None) -> bool:
    """True if `hvd.init()` with these arguments makes process sets, or some can come later."""
    if process_sets or isinstance(comm, (list, tuple)):
        return True
    return os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "0") != "0"


def _threads() -> set[int]:
    # one list can lack a thread, after a thread that ended meanwhile (dltune.system.proc.stat)
    return {int(task.name) for _ in range(3) for task in _TASKS.iterdir()}


def _age(thread: int) -> tuple[int, int]:
    """Threads sort by their start: the background thread makes all others that `init` adds."""
    with contextlib.suppress(OSError):
        # the command's name is in parentheses and can hold spaces
        return int((_TASKS / f"{thread}/stat").read_text().rpartition(")")[2].split()[19]), thread
    return sys.maxsize, thread


def _shorten_slice(thread: int) -> float | None:
    """The slice that the thread has now, in seconds; None when this kernel has none to set."""
    numbers = _SCHEDULING.get(os.uname().machine)
    if numbers is None:
        return None
    call = ctypes.CDLL(None).syscall
    data = ctypes.create_string_buffer(_ATTRIBUTES.size)
    # of SCHED_OTHER alone: a thread with another policy was given it on purpose
    if call(numbers[1], thread, data, _ATTRIBUTES.size, 0) or _ATTRIBUTES.unpack(data.raw)[1]:
        return None
    nice = _ATTRIBUTES.unpack(data.raw)[3]
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, 0, nice, 0, _SHORTEST_SLICE, 0, 0)
    call(numbers[0], thread, wanted, 0)
    call(numbers[1], thread, data, _ATTRIBUTES.size, 0)
    return _ATTRIBUTES.unpack(data.raw)[5] * 1e-9 or None


def _mpi_version() -> str | None:
    """Return the version line of the loaded MPI library."""
    found = re.search(r"\S*/libmpi\.so\S*", Path("/proc/self/maps").read_text())
    if found is None:
        return None
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ctypes.CDLL(found[0]).MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode(errors="replace").strip()


def _in_words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return _short(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)


def _short(what: object) -> str:
    text = str(what)
    return text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 1] + "…"
