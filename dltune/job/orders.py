"""The language in which dltune sends orders to the plugin (read by native/core/orders.cc).

Fields of a line are separated by tabs; keys and signatures, which can hold any text, escape their
tabs with backslashes. A set of orders is between `begin` and `end` and is
obeyed as a whole, from the start of a graph's next execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dltune.schemas.machine import Core, Machine
from dltune.schemas.sections.threads import Candidate, Uniform

if TYPE_CHECKING:
    from dltune.system.perf.events import Event


# a plan's outcome is measured on one step in so many
RECORD_EVERY = 16


def machine_lines(machine: Machine, pools: Uniform | None = None) -> list[str]:
    """Return lines of the cores, once, before anything else, and of TensorFlow's own pools."""
    lines = [
        f"core\t{core.tile}\t{','.join(map(str, core.cpus))}" for core in _with_dense_tiles(machine)
    ]
    lines.append("cores")
    if pools:
        lines.append(uniform_line(pools.intra, pools.inter))
    return lines


def encoded(lines: Iterable[str]) -> bytes:
    """Lines as they are sent: the plugin sends a byte of a key as the character of its number."""
    return "".join(f"{line}\n" for line in lines).encode("latin-1", errors="replace")


def uniform_line(intra: int, inter: int) -> str:
    """TensorFlow's own settings to impose on devices not yet made; 0 leaves the job's."""
    return f"uniform\t{intra}\t{inter}"


def alternate_line(versions: Sequence[int]) -> str:
    """Let the executions of each graph take turns between sets of orders sent before."""
    return "\t".join(["alternate", *map(str, versions)])


def grant_line(count: int) -> str:
    """Let `count` more executions pass the step barrier."""
    return f"grant\t{count}"


def sampled_lines(targets: Sequence[str]) -> list[str]:
    """Record one in RECORD_EVERY executions of these graphs op by op."""
    plain, recorded = 1, 2
    turns = [plain] * (RECORD_EVERY - 1)
    turns.insert(RECORD_EVERY // 2, recorded)
    return [
        *Orders(plain, targets=targets).lines(),
        *Orders(recorded, targets=targets, events=True).lines(),
        alternate_line(turns),
    ]


# when its dltune vanishes the job runs as before, instead of under its last orders
DETACH = "detach\t1"
# ask for the totals so far
REPORT = "report"
# ask for the use by the process and its threads
TOTALS = "totals"


@dataclass
class Orders:
    """One set of orders. `targets` are the signatures of the graphs they are for.

    `ops` maps a key to (threads, cores); `corun` maps a key to (serial seconds, strategy 2's
    choice, strategy 3's candidates) for admission; keys in neither obey `fallback`, or TensorFlow's
    own pool. `counters` are read, as one group, around each op that is recorded. `flush`: ops of
    PyTorch's take denormal numbers for zero.
    """

    version: int
    targets: Iterable[str] = ()
    events: bool = False
    discover: bool = False
    serial: bool = False
    barrier: bool = False
    flush: bool = False
    hyperthreads: bool = False
    small: float = 0.0
    counters: Sequence[Event] = ()
    fallback: tuple[int, tuple[int, ...]] | None = None
    ops: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    corun: dict[str, tuple[float, Candidate, tuple[Candidate, ...]]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        lines = [f"begin\t{self.version}"]
        flags = {
            "events": self.events,
            "discover": self.discover,
            "serial": self.serial,
            "barrier": self.barrier,
            "flush": self.flush,
            "admission": bool(self.corun),
            "hyperthreads": self.hyperthreads,
        }
        lines += [f"{name}\t1" for name, on in flags.items() if on]
        lines += [f"target\t{escaped(signature)}" for signature in self.targets]
        lines.append(f"small\t{self.small!r}")
        lines += map(_counter, self.counters)
        if self.fallback:
            lines.append(f"default\t{self.fallback[0]}\t{_slots(self.fallback[1])}")
        lines += [
            f"op\t{escaped(key)}\t{n}\t{_slots(cores)}" for key, (n, cores) in self.ops.items()
        ]
        for key, (serial, choice, candidates) in self.corun.items():
            ways = "\t".join(map(_way, (choice, *candidates)))
            lines.append(f"corun\t{escaped(key)}\t{serial!r}\t{ways}")
        return [*lines, "end"]


def escaped(text: str) -> str:
    """Escape any text as a field."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _slots(cores: tuple[int, ...]) -> str:
    return ",".join(map(str, cores))


def _way(candidate: Candidate) -> str:
    return f"{candidate.threads}:{int(candidate.placement == 'shared')}:{candidate.seconds!r}"


def _counter(event: Event) -> str:
    numbers = (event.type, event.config, event.config1, event.config2, int(event.exclude_kernel))
    return "\t".join(["counter", *map(str, numbers)])


def _with_dense_tiles(machine: Machine) -> list[Core]:
    import msgspec

    numbers = {tile: i for i, tile in enumerate(sorted({c.tile for c in machine.cores}))}
    return [msgspec.structs.replace(core, tile=numbers[core.tile]) for core in machine.cores]
