"""A job as one process for each device of the plan, and what came of it in each.

Before a job starts, `require_same` tries small operators of the plan: XLA has been seen to compute
wrong gradients on a mesh.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import counted
from dltune.extensions import Hook
from dltune.frameworks.pytorch import INJECTED as TORCH
from dltune.job import protocol, ranks
from dltune.job.launch import Event, Job, require_executable
from dltune.job.subprocesses import last_words
from dltune.plan.planner import Enforcement, Outcome, Run
from dltune.systems.parallelism import INJECTED
from dltune.systems.parallelism.emit import expressed
from dltune.systems.parallelism.jax import links
from dltune.systems.parallelism.schemas.strategy import Parallelism

LOOPBACK = "127.0.0.1"
# below those that kernels give out by themselves
_FIRST_PORT, _PORTS = 20_000, 12_000


@dataclass(frozen=True)
class Meeting:
    """`here`: the devices of this machine, by number. `hosts`: at which each device of the plan is
    reached. `address`: of the coordinator. `seed`: what all processes draw from, whatever the
    script leaves open."""

    here: tuple[int, ...]
    hosts: tuple[str, ...]
    address: str
    seed: int


def meeting(section: Parallelism) -> Meeting:
    """Return the plan's devices that are on this machine, and the address where their processes
    meet. Where the devices are on several hosts, each starts its own from the same plan: they agree
    on a port and a seed by its content. Raises UsageError when this machine is none of them."""
    count = len(section.devices)
    hosts = section.hosts
    if len(set(hosts)) <= 1:
        seed = random.SystemRandom().randrange(2**31)
        return Meeting(tuple(range(count)), (LOOPBACK,) * count, ranks.free_address(), seed)
    local = {host for host in set(hosts) if _is_here(host)}
    if not local:
        raise UsageError(
            f"the plan's devices are on the hosts {', '.join(dict.fromkeys(hosts))}; this machine "
            "is none of them",
            remedy="start dltune run with this plan on each of these hosts",
        )
    content = int(documents.digest(section)[:8], 16)
    here = tuple(n for n, host in enumerate(hosts) if host in local)
    address = f"{hosts[0]}:{_FIRST_PORT + content % _PORTS}"
    return Meeting(here, hosts, address, content % 2**31)


def interface(host: str) -> str:
    """The network interface of this machine that has the host's address; empty: not known."""
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return ""
    for name, addresses in psutil.net_if_addrs().items():
        if address in (one.address for one in addresses):
            return str(name)
    return "lo" if address.startswith("127.") else ""


def _is_here(host: str) -> bool:
    """True if an address of this machine is that host's."""
    try:
        with socket.create_server((host, 0)):
            return True
    except OSError:
        return False


# of the largest gradient of an array; floats are added up in other orders
TOLERANCE = 1e-3
_WORKER = INJECTED.parent / "jax" / "gradients_rank.py"


@dataclass(frozen=True)
class Difference:
    """`operators`: the pair, by name, the second reading the first. `array`: "loss", "input" or a
    weight. `error`: the largest, of the largest gradient; `ratio`: how many times as large all
    are."""

    operators: tuple[str, ...]
    array: str
    error: float
    ratio: float


def differences(
    plan: Mapping[str, Any],
    pairs: Sequence[tuple[int, ...]] | None = None,
    python: str = sys.executable,
) -> list[Difference]:
    """Return the differences from one device by more than TOLERANCE, for small operators divided as
    those of `plan` (as `_dltune_layouts.Layouts` has it), one process for each device.

    `pairs`: operators of which the second reads the first, by number; by default neighbours in the
    plan. Those divided alike are tried once. Raises UsageError when `python` has no JAX, or the
    processes fail.

    This is a trial of a mesh's gradients against those of one device, as compilers have been seen
    to be wrong. XLA's CPU build (JAX 0.10) makes gradients twice as large where a convolution's
    height is divided over one axis of a 2 x 2 mesh and the other axis divides nothing;
    docs/explanation/plan-parallelism.md describes it.
    """
    operators = plan["operators"]
    if pairs is None:
        pairs = [(n, n + 1) for n in range(len(operators) - 1)] or [(0,)]
    distinct: dict[tuple[object, ...], tuple[int, ...]] = {}
    for pair in pairs:
        ranks_fall = all(
            operators[a]["rank"] >= operators[b]["rank"] for a, b in itertools.pairwise(pair)
        )
        kept = pair if ranks_fall else pair[-1:]
        distinct.setdefault(tuple(_kind(operators[n]) for n in kept), kept)
    chosen = [*distinct.values()]
    found = []
    for pair, errors in zip(chosen, _tried(plan, chosen, python), strict=True):
        names = tuple(operators[n]["name"] for n in pair)
        found += [
            Difference(names, array, error, ratio)
            for array, (error, ratio) in errors.items()
            if not error <= TOLERANCE
        ]
    return found


def suspects(plan: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Pairs to be tried before a job trains with the plan: convolutions like those that have been
    seen to go wrong, each reading one that is divided as it is itself."""
    return [
        (n, n)
        for n, one in enumerate(plan["operators"])
        if one["weights"] and one["rank"] == 4 and None in one["axes"] and {1, 2} & {*one["axes"]}
    ]


def require_same(
    plan: Mapping[str, Any],
    pairs: Sequence[tuple[int, ...]] | None = None,
    python: str = sys.executable,
) -> None:
    """Raises UsageError, naming the first, when there are `differences`."""
    if found := differences(plan, pairs, python):
        one = found[0]
        raise UsageError(
            f"divided as planned, {' and '.join(map(repr, one.operators))} have wrong gradients: "
            f"XLA makes those of {one.array} {one.ratio:.2f} times as large as on one device, with "
            f"an error of up to {one.error:.0%}",
            remedy="divide these operators differently",
        )


def _kind(operator: Mapping[str, Any]) -> tuple[object, ...]:
    head = operator["type"].split()[0]
    axes, parameter = operator["axes"], operator["parameter"]
    return head, operator["rank"], tuple(axes), parameter, bool(operator["weights"])


def _tried(
    plan: Mapping[str, Any], pairs: Sequence[tuple[int, ...]], python: str
) -> list[dict[str, tuple[float, float]]]:
    count = math.prod(plan["mesh"])
    with tempfile.TemporaryDirectory(prefix="dltune-") as name:
        folder = Path(name)
        result = folder / "differences.json"
        orders = {
            "plan": plan,
            "pairs": pairs,
            "address": ranks.free_address(),
            "result": str(result),
        }
        (folder / "orders.json").write_text(json.dumps(orders))
        command = [python, str(_WORKER), str(folder / "orders.json")]
        links.run(folder, count, command, "cannot check the gradients of the plan")
        found: list[dict[str, tuple[float, float]]] = json.loads(result.read_text())
        return found


_SHOWN = 3


class Taken(msgspec.Struct, frozen=True):
    """The outcome of the section. `consumer`: the kind that took it, by which `framework`;
    `weights` and `divided`: of the job's models, in all and over devices; `outputs`: operators
    whose outputs were divided as planned. `unknown`: weights that are no operator's."""

    ranks: int
    consumer: str
    framework: str
    weights: int
    divided: int
    outputs: int
    unknown: tuple[str, ...] = ()


class EnforcedParallelism(Enforcement):
    """The section on parallelism in one job. Raises UsageError when no job can take it."""

    inside = True

    def __init__(self, section: Parallelism, run: Run) -> None:
        self._plan = expressed(section)
        self._count = len(section.devices)
        self._meeting = meeting(section)
        self._run = run
        self._plain = run.environment.get("DLTUNE_DISABLE") == "1"
        if self._plain:
            self.announced = [
                "DLTUNE_DISABLE=1 is set: the job runs as one process, without the plan"
            ]
        self._folder = Path()
        self._heard: dict[int, protocol.Parallel] = {}
        self._cause: str | None = None

    def intent(self) -> Iterator[str]:
        shape = " x ".join(map(str, self._plan["mesh"]))
        here = len(self._meeting.here)
        of = f"{here} of {self._count}" if here < self._count else f"{here}"
        yield f"{of} processes, one per device of a mesh of shape {shape}"

    def command(self, given: Sequence[str]) -> Sequence[str]:
        """Raises UsageError when it cannot be started."""
        if self._plain or not given:
            return given
        require_executable(given[0])
        self._require_gradients(given[0])
        return ranks.started(self._meeting.here, self._count, given)

    def _require_gradients(self, program: str) -> None:
        """Raises UsageError when the job's JAX gives other gradients than those of one device."""
        if not (pairs := suspects(self._plan)):
            return
        if not Path(program).name.startswith("python"):
            self._run.say(
                "the plan's gradients are not checked: the command is not a Python interpreter"
            )
            return
        self._run.say("checking the gradients of convolutions that XLA can compile wrongly")
        try:
            require_same(self._plan, pairs, program)
        except UsageError as error:
            if not self._run.partial:
                raise
            self._run.say(str(error))

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        self._folder = folder
        alike = {} if "PYTHONHASHSEED" in base else {"PYTHONHASHSEED": str(self._meeting.seed)}
        return {ranks.FOLDER: str(folder), **alike}

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        if ranks.RANK not in python.environment:
            return {}
        rank = int(python.environment[ranks.RANK])
        orders = {
            "plan": self._plan,
            "address": self._meeting.address,
            "rank": rank,
            "device": self._meeting.here.index(rank),
            "host": self._meeting.hosts[rank],
            "interface": interface(self._meeting.hosts[rank]),
            "ranks": self._count,
            "seed": self._meeting.seed,
            "partial": self._run.partial,
        }
        # they seed Python's random numbers, and so wait for no import
        hooks = (
            Hook("_dltune_parallel", (str(INJECTED),)),
            Hook("_dltune_torch_parallel", (str(INJECTED), str(TORCH))),
        )
        adapters = [hook.under(orders) for hook in hooks]  # whichever the job imports
        return {**self._run.shares.answer(python), "adapters": adapters}

    def hear(self, job: Job, event: Event) -> None:
        """Raises UsageError when the job cannot take the plan."""
        message = event.message
        if not isinstance(message, protocol.Parallel):
            return
        if message.fault:
            raise UsageError(message.fault, remedy=message.remedy)
        self._heard[message.rank] = message

    def ended(self, exit_code: int) -> Outcome | None:
        """Raises DltuneError when the job has not taken the plan."""
        if self._plain:
            return None
        if failed := ranks.first_failed(self._folder):
            rank, code = failed
            words = last_words(ranks.log(self._folder, rank), f"rank {rank}") if rank else ""
            self._cause = f"rank {rank} ended with exit code {code}" + (f"; {words}" * bool(words))
        if exit_code:
            return None  # the reason of the failure is reported instead
        self._require_taken()
        one = next(iter(self._heard.values()))
        taken = Taken(
            *(self._count, one.consumer, one.framework, one.weights, one.divided, one.outputs),
            tuple(one.unknown),
        )
        return Outcome(taken, [*_sentences(taken)])

    def cause(self) -> str | None:
        return self._cause

    def _require_taken(self) -> None:
        """Raises UsageError unless every rank has."""
        if len(self._heard) < len(self._meeting.here):
            whom = f"not all of {self._count} ranks" if self._heard else "no process of the job"
            raise UsageError(
                f"{whom} imported JAX or called a PyTorch model, so the plan had no effect",
                remedy="use plans with a section parallelism only for jobs on JAX, Keras with JAX, "
                "or PyTorch",
            )
        one = next(iter(self._heard.values()))
        if not one.consumer:
            raise UsageError(
                "the job uses JAX without Keras and did not import the file that divides its "
                "arrays, so each rank computed the whole model",
                remedy="write that file with dltune plan parallelism --emit jax, and import it in "
                "the job",
            )
        if one.ended and one.unmet:
            more = f" and {len(one.unmet) - 1} more" if one.unmet[1:] else ""
            raise UsageError(
                "the plan divides weights that the job's models do not have: "
                f"{one.unmet[0]!r}{more}",
                remedy="plan again for the current network",
            )


def _sentences(taken: Taken) -> Iterator[str]:
    processes = f"{taken.ranks} processes on {taken.framework}"
    if taken.consumer == "jax":
        yield f"{processes}, divided by the emitted file"
        return
    yield (
        f"{processes}: {taken.divided} of {counted(taken.weights, 'weight')} and the outputs of "
        f"{counted(taken.outputs, 'operator')} divided as planned"
    )
    if taken.unknown:
        more = len(taken.unknown) - _SHOWN
        names = ", ".join(taken.unknown[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"not divided, because they belong to no operator of the plan: {names}"
