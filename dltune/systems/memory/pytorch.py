"""Memory of a PyTorch step, run call by call or compiled."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dltune.analysis.step_parts import unrecorded
from dltune.base.errors import UsageError
from dltune.schemas.profile import Profile
from dltune.schemas.pytorch_step import Call, Calls, Compiled, Graph, Rung
from dltune.simulate.step_graph import CSR, Kind, StepGraph, Tensors
from dltune.systems.memory.model.profiled_step import MeasuredStep
from dltune.systems.memory.model.schedule import Step as Run
from dltune.systems.memory.request import SMALLEST, Request
from dltune.systems.memory.section import Memory
from dltune.systems.memory.show import mib

TURNS = 10  # at most, until steps come in the order in which they are read


@dataclass
class Group:
    """Calls that give out memory and those that write into it. `again`: they can run once
    more, for the same results, and do nothing else."""

    calls: list[int]
    storages: list[int] = field(default_factory=list)
    again: bool = True

    @property
    def last(self) -> int:
        return self.calls[-1]


@dataclass(frozen=True, eq=False)
class EagerStep:
    """A step that PyTorch runs call by call, ready for its memory to be planned. `groups`: by node
    of the step's graph. `live`: bytes that are there before the step and after it. `readers`: by
    node, the storages that autograd reads just before it.

    Its calls run in the order of the script, and results that autograd keeps are computed again
    where it reads them. A call that writes into another call's result is one with that call: only
    the result of both is read again.
    """

    step: MeasuredStep
    calls: Calls
    groups: dict[int, Group]
    live: int
    readers: dict[int, Sequence[int]]


@dataclass(frozen=True)
class Recomputed:
    """`reads`: how often each of the group's storages is read in the backward pass, before the
    group runs again and after each time."""

    group: Group
    reads: list[list[int]]


def eager(found: Calls) -> EagerStep:
    return _Assembly(found).assembled()


def recomputed(found: EagerStep, steps: Sequence[Run]) -> list[Recomputed]:
    """Return those of these steps that run again, in the order of the calls."""
    times = Counter(step.node for step in steps)
    again = {
        node: Recomputed(group, [[0] * len(group.storages)])
        for node, group in found.groups.items()
        if times[node] > 1
    }
    owner = {
        storage: (node, slot)
        for node in again
        for slot, storage in enumerate(found.groups[node].storages)
    }
    begun: set[int] = set()
    for step in steps:
        read: list[int] = list(found.readers.get(step.node, ()))
        if step.node in again and step.node in begun:
            group = found.groups[step.node]
            for call in group.calls:
                read += [s for s in found.calls.calls[call].reads if s not in group.storages]
            reads = again[step.node].reads
            if len(reads) == 1 or any(reads[-1]):  # else the run before was for nobody
                reads.append([0] * len(group.storages))
        begun.add(step.node)
        for storage in read:
            if storage in owner:
                node, slot = owner[storage]
                again[node].reads[-1][slot] += 1
    return sorted(again.values(), key=lambda one: one.group.calls[0])


# dltune's own work in a step that gives up results, in the time by which a call of the forward pass
# is longer that goes through Python: for each of these calls, and for each that is made again
# (docs/research/benchmarks/memory.md)
FORWARD, AGAIN = 1.5, 3.0


def hooks(found: EagerStep, steps: Sequence[Run]) -> float:
    """Return the seconds of a step that dltune's own work takes; 0 where nothing runs again."""
    runs = Counter(step.node for step in steps)
    again = sum((n - 1) * len(found.groups[node].calls) for node, n in runs.items() if n > 1)
    calls = found.calls
    return (FORWARD * len(calls.forward) + AGAIN * again) * calls.crossing if again else 0.0


def as_read(found: EagerStep, steps: Sequence[Run]) -> list[Run]:
    """Return the runs in the order in which a job makes them: a group runs again when a reader
    needs its result and it is not there, and the result is kept for as many reads as in these
    steps. Who takes several results takes one after the other: those already taken are available
    meanwhile to the computation of the next."""
    again = recomputed(found, steps)
    place = {
        storage: (number, slot)
        for number, one in enumerate(again)
        for slot, storage in enumerate(one.group.storages)
    }
    node = {id(group): node for node, group in found.groups.items()}
    runs = [0] * len(again)
    left = [list(one.reads[0]) for one in again]  # reads of the present results
    in_hand: Counter[int] = Counter()  # by storage, of those that wait for others
    made: list[Run] = []

    def run(at: int, storages: Iterable[int]) -> None:
        taken = [storage for storage in storages if storage in place]
        for storage in taken:
            read(storage)
        made.append(Run(at))
        in_hand.subtract(taken)

    def read(storage: int) -> None:
        number, slot = place[storage]
        one = again[number]
        if left[number][slot] <= 0:
            if in_hand[storage] <= 0:
                given = (s for call in one.group.calls for s in found.calls.calls[call].reads)
                run(node[id(one.group)], [s for s in given if s not in one.group.storages])
            runs[number] += 1
            more = runs[number] < len(one.reads)
            left[number] = list(one.reads[runs[number]]) if more else [0] * len(left[number])
            left[number][slot] = max(left[number][slot], 1)
        left[number][slot] -= 1
        in_hand[storage] += 1

    for at in found.step.order:
        run(at, found.readers.get(at, ()))
    return made


def _settled(found: EagerStep, steps: Sequence[Run]) -> Sequence[Run]:
    """As the job reads what is planned from these steps: they are read in the order in which they
    are told."""
    # a group that is read can be computed from another, and that from a third
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000 + 4 * len(found.groups)))
    for _ in range(TURNS):
        told, steps = steps, as_read(found, steps)
        if steps == told:
            break
    return steps


def groups(found: Calls) -> list[Group]:
    """Return the groups of all calls that autograd is to differentiate."""
    made: list[Group] = []
    of_storage: dict[int, Group] = {}
    writes: dict[int, list[int]] = {}
    backward = [at for at, call in enumerate(found.calls) if call.phase == "backward"]
    over = backward[-1] if backward else 0
    for at, call in enumerate(found.calls):
        for storage in call.writes:
            writes.setdefault(storage, []).append(at)
        if call.phase != "forward":
            continue
        written = {id(group): group for s in call.writes if (group := of_storage.get(s))}
        if len(written) == 1 and all(s in of_storage for s in call.writes):
            (group,) = written.values()
            group.calls.append(at)
        else:
            group = Group([at], again=not call.writes)
            made.append(group)
            for other in written.values():
                other.again = False
        group.storages += call.gives
        group.again &= call.plain and call.name.startswith("aten.")
        of_storage.update(dict.fromkeys(call.gives, group))
    for at, call in enumerate(found.calls):
        for storage in call.reads:
            owner = of_storage.get(storage)
            if owner and at < owner.last and at not in owner.calls:
                owner.again = False  # it no longer reads the present value
    for group in made:
        group.again &= bool(group.storages) and not any(
            later not in group.calls and later < over
            for storage in group.storages
            for later in writes.get(storage, ())
        )
        group.again &= not any(
            at < later < over
            for at in group.calls
            for storage in found.calls[at].reads
            if storage not in group.storages
            for later in writes.get(storage, ())
        )
    return made


class _Assembly:
    """Nodes and tensors as they come to be."""

    def __init__(self, found: Calls) -> None:
        self.found = found
        self.names: list[str] = []
        self.seconds: list[float] = []
        self.again: list[bool] = []
        self.reads: list[list[int]] = []
        self.places: list[tuple[int, int]] = []
        self.bytes: list[int] = []
        self.kinds: list[Kind] = []
        self.tensor: dict[int, int] = {}  # by storage

    def assembled(self) -> EagerStep:
        found = self.found
        count = len(found.calls)
        together = {at: group for group in groups(found) if group.again for at in group.calls}
        saved = {storage for storage, _ in found.saved}
        # what autograd saved before all calls of the group had run is not given up
        stays = {
            storage
            for storage, at in found.saved
            if (group := together.get(found.storages[storage].born)) and at <= group.last
        }
        until: dict[int, list[int]] = {}
        for number, one in enumerate(found.storages):
            until.setdefault(min(one.gone, count - 1), []).append(number)
            if number in saved and one.born >= 0 and one.held < one.gone:
                until.setdefault(min(one.held, count - 1), []).append(number)
        read: dict[int, list[int]] = {}
        for storage, at in found.read:
            read.setdefault(min(at, count - 1), []).append(storage)
        self._node("before the step", 0.0)
        for number, one in enumerate(found.storages):
            if one.born < 0:
                kept = one.gone >= count
                self._give(number, one.bytes, Kind.VARIABLE if kept else Kind.RESULT)
        found_groups: dict[int, Group] = {}
        readers: dict[int, Sequence[int]] = {}
        early: dict[int, list[int]] = {}  # by call before which it is there, memory of a group
        for at, call in enumerate(found.calls):
            group = together.get(at)
            node = len(self.names)
            readers[node] = [storage for storage in read.get(at, ()) if storage not in stays]
            if group is None:
                self._node(_name(at, call), call.seconds, [*call.reads, *read.get(at, ())])
                for storage in call.gives:
                    self._give(storage, found.storages[storage].bytes)
                self._scratch(call.scratch)
            elif at < group.last:
                inputs = (s for s in call.reads if s not in group.storages)
                self._node(f"{_name(at, call)}, begun", 0.0, inputs)
                for storage in call.gives:
                    early.setdefault(group.last - 1, []).append(len(self.bytes))
                    self._tensor(found.storages[storage].bytes)
                self._scratch(call.scratch)
            else:
                members = [found.calls[one] for one in group.calls]
                inputs = (s for one in members for s in one.reads if s not in group.storages)
                names = " and ".join(_short(one.name) for one in members)
                seconds = sum(one.seconds for one in members)
                self._node(f"{group.calls[0]} {names}", seconds, inputs, again=True)
                for storage in group.storages:
                    if storage in stays:
                        self._scratch(found.storages[storage].bytes)
                    else:
                        self._give(storage, found.storages[storage].bytes)
                self._scratch(max(one.scratch for one in members))
                found_groups[node] = group
            ends = [self.tensor[s] for s in until.get(at, ()) if s in self.tensor]
            ends += early.get(at, ())
            begins = stays.intersection(group.storages) if group and at == group.last else ()
            if ends or begins:
                self._node(f"after {at}", 0.0)
                self.reads[-1] = ends
                for storage in begins:
                    self._give(storage, found.storages[storage].bytes)
        made = EagerStep(self._measured(), found, found_groups, found.live, readers)
        step = replace(made.step, run=lambda steps: _settled(made, steps))
        return replace(made, step=step)

    def _node(
        self, name: str, seconds: float, storages: Iterable[int] = (), *, again: bool = False
    ) -> None:
        self.names.append(name)
        self.seconds.append(seconds)
        self.again.append(again)
        self.reads.append([self.tensor[s] for s in dict.fromkeys(storages) if s in self.tensor])

    def _give(self, storage: int, bytes: int, kind: Kind = Kind.RESULT) -> None:
        self.tensor[storage] = len(self.bytes)
        self._tensor(bytes, kind)

    def _tensor(self, bytes: int, kind: Kind = Kind.RESULT) -> None:
        node = len(self.names) - 1
        slot = sum(1 for producer, _ in reversed(self.places) if producer == node)
        self.places.append((node, slot))
        self.bytes.append(bytes)
        self.kinds.append(kind)

    def _scratch(self, bytes: int) -> None:
        if bytes:
            self._tensor(bytes)

    def _measured(self) -> MeasuredStep:
        count = len(self.names)
        graph = StepGraph(
            names=self.names,
            op=np.full(count, -1, np.int32),
            runs=np.ones(count),
            tensors=Tensors.of(self.places, self.bytes, kind=self.kinds),
            reads=CSR.of(self.reads),
            control=CSR.of([] for _ in range(count)),
            back=np.zeros(count, np.bool_),
        )
        return MeasuredStep(graph, range(count), self.seconds, self.again, {}, {}, {}, [])


def _name(at: int, call: Call) -> str:
    return f"{at} {_short(call.name)}"


def _short(name: str) -> str:
    """Return the short name: "relu_" of "aten.relu_.default"."""
    return name.removeprefix("aten.").partition(".")[0]


@dataclass(frozen=True)
class Kept:
    """Under one `budget` of the compiler. `peak`: bytes in all; `added`: a share of the work."""

    budget: float
    peak: int
    added: float


def decide_compiled(profile: Profile, found: Compiled, request: Request = SMALLEST) -> Memory:
    """Return the plan of a compiled step, whose slowdown is a share of its work. Raises UsageError
    when the budget cannot be met, or the profile lacks the necessary data.

    The plan chooses the part of a step that PyTorch's compiler keeps for the backward pass.
    `activation_memory_budget`, a number, is the part that the compiler keeps of all that it would
    keep; it computes the cheapest again. The profile has the outcome of each number, for the job's
    own graphs.
    """
    _require_known(found)
    there, budget, slowdown = list(_kept(found)), request.budget, request.slowdown
    if budget is not None:
        fitting = [one for one in there if one.peak <= budget]
        least = min(one.peak for one in there)
        if not fitting:
            raise UsageError(
                f"budget too small: a step needs at least {mib(least)}, which exceeds "
                f"{mib(budget)}",
                remedy=f"pass --budget {-(-least >> 20)}MiB or more, or --smallest",
            )
        chosen = min(fitting, key=lambda one: (one.added, one.peak))
    else:
        allowed = [one for one in there if slowdown is None or one.added <= slowdown]
        chosen = min(allowed or there[:1], key=lambda one: (one.peak, one.added))
    seconds = unrecorded(profile)
    before, peak = (max(0, one.peak - found.live) for one in (there[0], chosen))
    return Memory(
        signature=found.signature,
        nodes=(),
        order=(),
        budget=budget,
        live=found.live,
        before=before,
        peak=peak,
        seconds=seconds,
        added=chosen.added * seconds,
        course_before=(before,),
        course=(peak,),
        compiled=chosen.budget,
    )


def _require_known(found: Compiled) -> None:
    if found.failed or not found.graphs:
        raise UsageError(
            "the profile does not contain the memory that PyTorch's compiler keeps for the "
            "backward pass: " + (found.failed or "no compiled graph has a backward pass"),
            remedy="profile the job without torch.compile and plan again",
        )
    if found.passes != 1:
        raise UsageError(
            f"a step has {found.passes} backward passes; with torch.compile, memory can be planned "
            "for one backward pass only",
            remedy="profile the job without torch.compile and plan again",
        )


def _kept(found: Compiled) -> Iterator[Kept]:
    """Yield the job's own first. Values that the graphs do not describe, such as the loss, are as
    they were measured; they come while everything kept is there. Compilers can find an order that
    takes less than the graph's own."""
    graphs = [graph for graph in found.graphs for _ in range(graph.runs)]
    own = [graph.rungs[0] for graph in graphs]
    beside = found.between - _sum(own)
    work = sum(graph.work for graph in graphs)
    budgets = {rung.budget for graph in graphs for rung in graph.rungs}
    for budget in sorted(budgets, reverse=True):
        rungs = [_rung(graph, budget) for graph in graphs]
        less = _sum(own) - _sum(rungs)
        within = max(_most(rungs, _forward), _most(rungs, _backward))
        peak = max(found.peak - less, beside + within) if rungs != own else found.peak
        more = sum(rung.work for rung in rungs) - sum(rung.work for rung in own)
        yield Kept(budget, peak, max(0.0, more) / max(work, 1.0))


def _rung(graph: Graph, budget: float) -> Rung:
    """Return the rung of a budget: between two rungs it comes to the same as the upper; the job's
    own budget, which can be smaller for a part of it, stays."""
    above = (one for one in graph.rungs if one.budget >= budget)
    return min(above, key=lambda one: one.budget, default=graph.rungs[0])


def _sum(rungs: Sequence[Rung]) -> int:
    return sum(rung.kept for rung in rungs)


def _most(rungs: Sequence[Rung], within: Callable[[Rung], int]) -> int:
    """Bytes in either pass of graphs that run one after the other, and backward in turn: those
    before have left what they keep."""
    return max(_sum(rungs[:at]) + within(rung) for at, rung in enumerate(rungs))


def _forward(rung: Rung) -> int:
    return rung.forward


def _backward(rung: Rung) -> int:
    return rung.backward
