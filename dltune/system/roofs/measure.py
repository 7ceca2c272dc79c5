"""Roofs of a machine: the cases to measure, the measurement, its cache, and its tables.

A roof is the highest measured rate of an arithmetic instruction (`Kernel`) or of a level of memory
(`Level`). Roofs are measured once for a machine and kept next to the built code, in a file named
after the `fingerprint`.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import Cell, Table, columns
from dltune.native.build import cache_folder
from dltune.schemas import machine as document
from dltune.schemas.machine import (
    MEMORY,
    ROOFS_SCHEMA,
    Bandwidth,
    Cache,
    DType,
    Machine,
    Peak,
    Roofs,
)
from dltune.system import kernel_files, topology
from dltune.system.roofs.roofs_binding import SOURCES, Memory, Refused, peak

# The arithmetic that is measured: which of a CPU's instructions, on numbers of which type


@dataclass(frozen=True)
class Kernel:
    """`name`: of the kernel in roofs.cc. `flags`: what the kernel of the system calls what the CPU
    needs for it. `width`: operations of one instruction, by its registers' bits."""

    name: str
    dtype: DType
    instructions: str
    flags: frozenset[str]
    width: int


def _kernel(name: str, dtype: DType, instructions: str, flags: str, width: int) -> Kernel:
    return Kernel(name, dtype, instructions, frozenset(flags.split()), width)


# before FMA a multiplication and an addition are an instruction each
KERNELS = (
    _kernel("sse2_double", "float64", "SSE2", "sse2", 2),
    _kernel("avx_double", "float64", "AVX", "avx", 4),
    _kernel("fma_double", "float64", "AVX2 and FMA", "avx2 fma", 2 * 4),
    _kernel("avx512_double", "float64", "AVX-512", "avx512f", 2 * 8),
    _kernel("sse2_float", "float32", "SSE2", "sse2", 4),
    _kernel("avx_float", "float32", "AVX", "avx", 8),
    _kernel("fma_float", "float32", "AVX2 and FMA", "avx2 fma", 2 * 8),
    _kernel("avx512_float", "float32", "AVX-512", "avx512f", 2 * 16),
    _kernel("avx512_bf16", "bfloat16", "AVX512_BF16", "avx512f avx512_bf16", 2 * 32),
    _kernel("amx_bf16", "bfloat16", "AMX", "amx_tile amx_bf16", 2 * 16 * 16 * 32),
    _kernel("avx_vnni", "int8", "AVX_VNNI", "avx2 avx_vnni", 2 * 32),
    _kernel("avx512_vnni", "int8", "AVX512_VNNI", "avx512f avx512_vnni", 2 * 64),
    _kernel("amx_int8", "int8", "AMX", "amx_tile amx_int8", 2 * 16 * 16 * 64),
)


def usable(flags: Collection[str]) -> list[Kernel]:
    """Those that a CPU of these flags can run."""
    return [kernel for kernel in KERNELS if kernel.flags <= frozenset(flags)]


def streams(flags: Collection[str]) -> str:
    """The widest loads and stores of a CPU of these flags, as roofs.cc names them."""
    return next(
        name for name, flag in (("avx512", "avx512f"), ("avx", "avx"), ("sse2", ""))
        if not flag or flag in flags
    )  # fmt: skip


# The levels of memory that are measured, and the part of each that a core works on

# memory is what caches hold at most a quarter of
BEYOND_CACHES = 4
# where the system tells of no caches: more than the largest of today, 1 GiB, would take too long
_UNKNOWN = 64 * 2**20


@dataclass(frozen=True)
class Level:
    """`bytes` of it that all cores find together. `one` and `each`: bytes to work on, of a core
    that is alone, and of each core, in the machine's order, when all are at work."""

    name: str
    bytes: int | None
    one: int
    each: tuple[int, ...]


def levels(machine: Machine, root: Path = Path("/")) -> list[Level]:
    """The caches, the nearest first, and memory.

    A core works on half of its part of a cache, so that it finds room beside what else is there;
    where the level before is not much smaller, on all of that and half of this one, which may hold
    other lines than the one before it.
    """
    firsts = [core.cpus[0] for core in machine.cores]
    caches = [sorted(topology.caches_of(root, cpu), key=lambda c: c.level) for cpu in firsts]
    depth = min(map(len, caches), default=0)
    found: list[Level] = []
    before = [0] * len(firsts)
    for place in range(depth):
        at = [of[place] for of in caches]
        if not all(cache.size for cache in at):
            break
        sharing = [sum(cpu in cache.cpus for cpu in firsts) for cache in at]
        shares = [(c.size or 0) // n for c, n in zip(at, sharing, strict=True)]
        found.append(
            Level(
                f"L{at[0].level}",
                sum({cache.cpus: cache.size or 0 for cache in at}.values()),
                _part(at[0].size or 0, before[0]),
                tuple(map(_part, shares, before)),
            )
        )
        before = shares
    whole = found[-1].bytes if found else None
    alone = (caches[0][depth - 1].size or 0) if found else _UNKNOWN
    each = (whole or _UNKNOWN) // len(firsts)
    memory = Level(MEMORY, None, BEYOND_CACHES * alone, (BEYOND_CACHES * each,) * len(firsts))
    return [*found, memory]


def _part(share: int, before: int) -> int:
    return share // 2 if share >= 4 * before else before + share // 2


def room(found: Sequence[Level]) -> list[int]:
    """Bytes of arrays that each core needs for all levels, the first core as it is alone too."""
    most = [max(of) for of in zip(*(level.each for level in found), strict=True)]
    return [max(most[0], *(level.one for level in found)), *most[1:]]


# The conditions for which roofs hold

_TOLD = ("vendor_id", "cpu family", "model", "stepping", "model name", "microcode")


def unknown(kind: str | None = None) -> str | None:
    """Why a CPU of this kind (None: the one here) cannot be measured; None when it can."""
    kind = kind or platform.machine()
    if kind in ("x86_64", "AMD64"):
        return None
    return f"peak performance can be measured only on x86-64, and this CPU is {kind}"


def fingerprint(machine: Machine, root: Path = Path("/")) -> str:
    """Return a short hash of the conditions for which roofs hold: this CPU with this microcode,
    these cores and limits, these kernels."""
    cpu = kernel_files.cpuinfo_value(root)
    flags = sorted((cpu.get("flags") or cpu.get("Features", "")).split())
    facts = (
        ROOFS_SCHEMA,
        [cpu.get(name) for name in _TOLD],
        flags,
        machine.fingerprint,
        [(level.name, level.one, level.each) for level in levels(machine, root)],
        _kernels(),
    )
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def _kernels() -> str:
    """Of the code that measures: the kernels and what calls them."""
    digest = hashlib.sha256()
    folder = SOURCES[0].parent
    for source in sorted([*folder.glob("*.cc"), *folder.glob("*.h"), *folder.glob("*.py")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()


# The measurement

# about the seconds of a turn: long enough for threads that begin some microseconds apart, short
# enough to fit between two interruptions by other work
TURN = 0.5e-3
LEAST_TURNS, TRIALS = 10, 3
# a case is settled when its best turn is no accident: so many turns came so near to it
SETTLING, NEAR = 3, 0.02
_TRIAL = 1 << 12  # rounds of a kernel, to learn how long they take
# share of the available memory; the rest is left to other processes
MOST_MEMORY = 0.25

_WAYS = ("read", "triad")
# a function of the number of repetitions: seconds, and the work done in them
Turn: TypeAlias = Callable[[int], tuple[float, int]]


@dataclass
class Case:
    """A case. `turn(n)` works n times and returns seconds and the work done in them. `times`: the n
    of a turn of about TURN. `rates`: the work per second of each turn so far."""

    turn: Turn
    times: int = 1
    rates: list[float] = field(default_factory=list)

    def calibrate(self, trial: int) -> None:
        """Set `times` from the shortest of some trials: other work only adds to it. Raises
        Refused."""
        seconds = min(self.turn(trial)[0] for _ in range(TRIALS))
        self.times = max(1, round(trial * TURN / seconds))

    def run(self) -> None:
        seconds, work = self.turn(self.times)
        self.rates.append(work / seconds)

    @property
    def settled(self) -> bool:
        best = sorted(self.rates)[-SETTLING:]
        return len(self.rates) >= LEAST_TURNS and best[0] >= best[-1] * (1 - NEAR)


@dataclass
class Cases:
    """Those that can be measured, by what they are of and on how many cores; and why others cannot,
    a sentence each."""

    found: dict[tuple[Kernel | Level | None, str, int], Case] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, of: Kernel | Level | None, name: str, cores: int, turn: Turn, trial: int) -> None:
        case = Case(turn)
        try:
            case.calibrate(trial)
        except Refused as error:
            what = (
                of.instructions if isinstance(of, Kernel) else f"{of.name}, {name}" if of else name
            )
            if (sentence := f"{what}: {error}") not in self.notes:
                self.notes.append(sentence)
        else:
            self.found[of, name, cores] = case


def measure(machine: Machine, seconds: float, clock: Callable[[], float] = time.monotonic) -> Roofs:
    """Measure the roofs of the cores that this process can use, in about so many seconds.

    Every case has its turn, again and again, and the highest rate of each counts. Turns are short,
    and the turns of a case are spread over all of the time. Other work of the machine or its
    hypervisor can then spoil many turns of each case, but not all.

    Raises UsageError on a CPU without kernels for it and if no thread can be pinned, and
    DltuneError when the kernels cannot be built.
    """
    if sentence := unknown():
        raise UsageError(sentence, remedy=None)
    cpus = [core.cpus[0] for core in machine.cores]
    cases = Cases()
    cases.add(None, "cycles", 1, lambda n: peak("cycles", cpus[:1], n), _TRIAL)
    if not cases.found:
        raise UsageError(
            f"the machine's peak performance cannot be measured: {'; '.join(cases.notes)}",
            remedy=None,
        )
    for kernel in usable(kernel_files.cpu_flags()):
        for count in sorted({1, len(cpus)}):
            turn = functools.partial(peak, kernel.name, cpus[:count])
            cases.add(kernel, kernel.name, count, turn, _TRIAL)
    there = _levels(machine, cases.notes)
    with contextlib.ExitStack() as stack:
        try:
            memory = stack.enter_context(Memory(cpus, room(there))) if there else None
        except Refused as error:
            memory, there = None, []
            cases.notes.append(f"bandwidths: {error}")
        if memory:
            _streams(cases, memory, there)
        left = _rounds(list(cases.found.values()), seconds, clock)
    if machine.quota is not None and machine.quota < len(cpus):
        cases.notes.append(
            f"the CPU quota is {machine.quota:g} CPUs: all {len(cpus)} cores together reach their "
            "rates only during a part of each quota period"
        )
    return Roofs(
        schema=ROOFS_SCHEMA,
        created=documents.now(),
        fingerprint=fingerprint(machine),
        cpu=machine.name,
        cores=len(cpus),
        frequency=max(cases.found[None, "cycles", 1].rates),
        peaks=tuple(
            Peak(of.dtype, of.instructions, of.width, count, *_figures(case))
            for (of, _, count), case in cases.found.items()
            if isinstance(of, Kernel)
        ),
        bandwidths=tuple(
            Bandwidth(
                of.name,
                "read" if way == "read" else "triad",
                of.one if count == 1 else sum(of.each),
                count,
                *_figures(case),
            )
            for (of, way, count), case in cases.found.items()
            if isinstance(of, Level)
        ),
        caches=tuple(Cache(level.name, level.bytes) for level in there if level.bytes is not None),
        unsettled=left,
        notes=tuple(cases.notes),
    )


def _levels(machine: Machine, notes: list[str]) -> list[Level]:
    """Those that there is memory enough for; a note where that leaves one out."""
    there = levels(machine)
    needed = sum(room(there))
    if machine.memory is None or needed <= MOST_MEMORY * machine.memory:
        return there
    notes.append(
        f"memory bandwidth was not measured: it needs {needed / 2**20:.0f} MiB, more than "
        f"{MOST_MEMORY:.0%} of the available memory"
    )
    return there[:-1]


def _streams(cases: Cases, memory: Memory, there: list[Level]) -> None:
    widest = streams(kernel_files.cpu_flags())
    for level in there:
        for way in _WAYS:
            for count in sorted({1, len(level.each)}):
                sizes = [level.one] if count == 1 else list(level.each)
                turn = functools.partial(memory.stream, f"{widest}_{way}", sizes)
                cases.add(level, way, count, turn, 1)


def _rounds(cases: list[Case], seconds: float, clock: Callable[[], float]) -> int:
    """Return the number of cases not settled when the time is over, or no more can."""
    began, rounds = clock(), 0
    left = cases
    while left and (rounds < LEAST_TURNS or clock() - began < seconds):
        for case in left:
            case.run()
        left = [case for case in left if not case.settled]
        rounds += 1
    return len(left)


def _figures(case: Case) -> tuple[float, float, int]:
    return max(case.rates), statistics.median(case.rates), len(case.rates)


# Roofs kept in the cache

# to measure in, about; on a quiet machine all is settled sooner
SECONDS = 3.0


def path(machine: Machine) -> Path:
    """Where the roofs of this machine, as it is now, are kept."""
    return cache_folder() / f"roofs-{fingerprint(machine)}.json"


def kept(machine: Machine) -> Roofs | None:
    """None where they are not measured yet. A file that is damaged counts as none: it is a cache,
    and is measured anew."""
    file = path(machine)
    if not file.exists():
        return None
    try:
        return document.load_roofs(file)
    except UsageError:
        return None


def measured_anew(machine: Machine) -> Roofs:
    """Measured now, and kept; one process after the other. Raises as `measure`, and UsageError when
    the cache folder cannot be written."""
    with _alone(machine):
        return _measured(machine)


def roofs_of(machine: Machine, on_measure: Callable[[], None]) -> Roofs:
    """Those kept, else measured now, which `on_measure` is told of. Processes that ask at the same
    time measure once. Raises as `measured_anew`."""
    if found := kept(machine):
        return found
    with _alone(machine):
        if found := kept(machine):
            return found
        on_measure()
        return _measured(machine)


def _measured(machine: Machine) -> Roofs:
    roofs = measure(machine, SECONDS)
    documents.Output(path(machine), overwrite=True).write(roofs)
    return roofs


@contextlib.contextmanager
def _alone(machine: Machine) -> Iterator[None]:
    """The only one that measures here; who comes later waits."""
    file = path(machine).with_suffix(".lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(
            f"cannot write to the cache folder {file.parent}: {error.strerror}",
            remedy="set DLTUNE_CACHE to a writable folder",
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# Tables


def roof_tables(roofs: Roofs) -> Iterator[Table]:
    """Peaks and bandwidths, on one core and on all."""
    heads = ("type", "instructions", ">1 core", f">{roofs.cores} cores", ">spread", "check")
    peaks = [one for one in roofs.peaks if one.cores == 1]
    yield Table(
        "peak arithmetic rate, 10^9 operations per second",
        columns(*heads),
        [_peak(roofs, one) for one in peaks],
    )
    heads = ("level", "access", ">1 core", f">{roofs.cores} cores", ">spread", "data per core")
    streams = [one for one in roofs.bandwidths if one.cores == 1]
    yield Table("peak bandwidth, GB/s", columns(*heads), [_stream(roofs, one) for one in streams])


def _peak(roofs: Roofs, one: Peak) -> tuple[Cell, ...]:
    every = next(
        (
            found
            for found in roofs.peaks
            if (found.dtype, found.instructions) == (one.dtype, one.instructions)
            and found.cores > 1
        ),
        None,
    )
    beside = arithmetic(one, roofs.frequency)
    return (one.dtype, one.instructions, *_rates(one, every), beside)


def _stream(roofs: Roofs, one: Bandwidth) -> tuple[Cell, ...]:
    every = next(
        (
            found
            for found in roofs.bandwidths
            if (found.level, found.way) == (one.level, one.way) and found.cores > 1
        ),
        None,
    )
    parts = f", {every.bytes / every.cores / 2**10:,.0f} with all cores" if every else ""
    return (one.level, one.way, *_rates(one, every), f"{one.bytes / 2**10:,.0f} KiB{parts}")


def remarks(roofs: Roofs) -> Iterator[str]:
    """What is to be known beside the tables."""
    yield (
        f"clock frequency under load: {roofs.frequency / 1e9:.2f} GHz. check: measured "
        "instructions per cycle; then ports x numbers per instruction x frequency."
    )
    if sentence := unsettled(roofs):
        yield sentence
    yield from roofs.notes


def unsettled(roofs: Roofs) -> str | None:
    """That other work was in the way; None when every rate was reached again and again."""
    if not roofs.unsettled:
        return None
    count = len(roofs.peaks) + len(roofs.bandwidths) + 1
    return (
        f"{roofs.unsettled} of the {count} measured peaks could be too low, because other work "
        "disturbed the measurement; run `dltune doctor --roofs` to measure them again"
    )


def arithmetic(peak: Peak, frequency: float) -> str:
    """Return the arithmetic next to a peak on one core: ports x width x frequency."""
    if peak.instructions == "AMX":
        return f"{peak.rate / frequency / peak.width * 16:.2f} tile products in 16 cycles"
    measured = peak.rate / frequency / peak.width
    ports = max(1, round(measured))
    whole = ports * peak.width * frequency
    return (
        f"{measured:.2f} per cycle; {ports} x {peak.width} x {frequency / 1e9:.2f} GHz = "
        f"{whole / 1e9:.1f}"
    )


def _rates(one: Peak | Bandwidth, every: Peak | Bandwidth | None) -> tuple[str, str, str]:
    """On one core, on all (where there are several), and how far the median turn stayed below."""
    most = every or one
    rate = f"{every.rate / 1e9:.1f}" if every else ""
    return f"{one.rate / 1e9:.1f}", rate, f"-{1 - most.median / most.rate:.0%}"
