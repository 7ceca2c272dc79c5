"""The plan document: decisions, and the predictions on which they rest.

`dltune plan`, `dltune tune` and `dltune diagnose --plan` write it; `dltune run` and `dltune bench`
read it. You can read, edit and commit it. Each planner owns one section; a plan can hold several.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, FILLED, LABEL, at_least, each, index, one_of, repeated
from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.schemas import graph
from dltune.schemas.profile import Framework, Placement

SCHEMA = "dltune.plan/1"

S = TypeVar("S", bound=msgspec.Struct)


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan.

    `profile`: SHA-256 of the profile's content.
    `machine`, `machine_name`, `cores`: fingerprint, name and number of cores of the machine that
      the plan is for.
    `framework`: framework that ran the job; null if no section depends on it.
    `signatures`: graphs that the plan was made for; empty if it fits any graph.
    `tasks`: tasks that run these graphs, such as `/job:worker/task:0`, if the job has several.
      Other tasks are left alone.
    `sections`: sections by planner name, in the order in which they take effect.
    """

    schema: str
    created: str
    dltune: str
    profile: str
    machine: str
    machine_name: str
    cores: Annotated[int, at_least(1)]
    framework: Framework | None
    signatures: tuple[str, ...]
    sections: dict[str, Any] = {}
    tasks: tuple[str, ...] = ()

    def of(self, kind: type[S]) -> S | None:
        """The section of that kind; None when the plan has none."""
        return next((s for s in self.sections.values() if isinstance(s, kind)), None)


def stored(path: Path) -> Plan:
    """The plan in a file, its sections as JSON has them. Raises UsageError, with every fault."""
    return documents.read(path, Plan, SCHEMA)


def typed(stored: Any, name: str, kind: type[S], path: Path) -> S:
    """A section as JSON has it, as its struct. Raises UsageError where it does not fit."""
    try:
        return msgspec.convert(stored, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path} is invalid: in sections.{visible(name)}: {documents.located(error)}",
            remedy="create the plan again with this version of dltune",
        ) from None


CANDIDATES = 3  # "three", an empirical number of the paper (section III-D, strategy 3)


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way to run an op.

    `threads`, `placement`: thread count and placement.
    `seconds`: predicted time.
    """

    threads: Annotated[int, at_least(1)]
    placement: Placement
    seconds: Annotated[float, AMOUNT]


class OpPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The decision for an op key, or for one node.

    `key`: key of the op; `@SIGNATURE/NAME` for one node of one graph, which takes precedence over
      the op's entry.
    `threads`: number of parts that the work is divided into. It determines the order of sums.
    `placement`: `shared` or `spread`.
    `seconds`: predicted time.
    `serial`: predicted time on one thread.
    `cores`: cores that the op must use; null lets the scheduler choose as many as `threads`.
    `candidates`: up to three alternatives for co-running, the fastest first.
    """

    key: Annotated[str, LABEL]
    threads: Annotated[int, at_least(1)]
    placement: Placement
    seconds: Annotated[float, AMOUNT]
    serial: Annotated[float, AMOUNT]
    cores: Annotated[tuple[int, ...] | None, FILLED] = None
    candidates: tuple[Candidate, ...] = ()

    @property
    def choice(self) -> Candidate:
        return Candidate(self.threads, self.placement, self.seconds)

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("cores", "core", self.cores or ())
        if len(self.candidates) > CANDIDATES:
            yield f"candidates must be at most {CANDIDATES}, got {len(self.candidates)} of them"


class Uniform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thread setting for all ops, as the framework itself provides it.

    `intra`: threads within an op.
    `inter`: ops at the same time.
    """

    intra: Annotated[int, at_least(1)]
    inter: Annotated[int, at_least(1)]

    @property
    def text(self) -> str:
        """Return the setting as the command line takes it, such as 4x2."""
        return f"{self.intra}x{self.inter}"

    @property
    def setting(self) -> str:
        """Return the name in predictions."""
        return f"uniform {self.text}"


_UNIFORM = re.compile(r"uniform ([0-9]{1,4})x([0-9]{1,4})")


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulated time of a round of the steps.

    `setting`: `default`, `recommended`, `uniform AxB` (A threads within an op, B ops at the same
      time), or a strategy such as `per-type+co-run+smt`. `cap=N` means that no op uses more than N
      threads.
    `seconds`: time of a round.
    `speedup`: speedup over `recommended`.
    `corunning`: mean number of ops running at the same time.
    """

    setting: str
    seconds: Annotated[float, AMOUNT]
    speedup: Annotated[float, AMOUNT]
    corunning: Annotated[float, AMOUNT]

    @property
    def uniform(self) -> Uniform | None:
        """Return the thread setting in the name; None: the prediction is of another setting."""
        numbers = _UNIFORM.fullmatch(self.setting)
        return Uniform(int(numbers[1]), int(numbers[2])) if numbers else None


class Threads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Thread counts, placement and co-runs of ops.

    `strategy`: the chosen entry of `predictions`.
    `uniform`: the framework's own thread setting under which the plan runs. With empty `ops` it is
      the whole plan.
    `corun`: ops run at the same time on separate cores.
    `hyperthreads`: small ops also use the second hardware threads. Requires `corun`.
    `small`: ops with less `serial` time than this are left to the framework's own thread pool.
    `ops`: decisions per op, the most time-consuming first.
    `predictions`: simulated settings.
    """

    strategy: str
    uniform: Uniform
    corun: bool
    hyperthreads: bool
    small: Annotated[float, AMOUNT]
    ops: tuple[OpPlan, ...]
    predictions: tuple[Prediction, ...]

    @property
    def chosen(self) -> Prediction:
        """Return the prediction of the chosen strategy."""
        return next(p for p in self.predictions if p.setting == self.strategy)

    def relation_faults(self) -> Iterator[str]:
        if self.hyperthreads and not self.corun:
            yield "hyperthreads must be false when corun is false: smt needs co-run"
        yield from repeated("ops", "key", (op.key for op in self.ops))
        predicted = {prediction.setting for prediction in self.predictions}
        yield from one_of(predicted, "the settings in predictions").of("", self, "strategy")


def thread_faults(threads: Threads, cores: int, signatures: Collection[str]) -> Iterator[str]:
    """All that cannot be done on a machine of `cores` cores, for graphs of these `signatures`."""
    for here, op in each("threads.ops", threads.ops):
        yield from index(cores, "cores").faults(f"{here}.cores", *(op.cores or ()))
        if (node := graph.named_node(op.key)) and node[0] not in signatures:
            yield f"{here}.key must name a node of the plan's graphs, got {visible(repr(op.key))}"
