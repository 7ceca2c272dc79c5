"""Assembly of the profile document from a process's messages and the climb.

`links` measures how fast tensors of other tasks arrive; `Own` holds the steps under the job's own
settings; `assemble` puts everything together.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dltune import __version__
from dltune.base import documents
from dltune.job import protocol
from dltune.job.record import NANOSECOND, Record, op_seconds, span
from dltune.profile import breakdown
from dltune.profile.breakdown import PythonLines
from dltune.profile.climb import Climb, Counting
from dltune.profile.processes import Meeting
from dltune.schemas import profile as doc
from dltune.schemas.machine import Machine, Roofs
from dltune.schemas.profile import Link, Step
from dltune.schemas.pytorch_step import Calls, Compiled
from dltune.schemas.settings import SettingsPlan
from dltune.stats import relative_spread, summary

# Speed of links between tasks

# what a cause must leave unexplained at most, of what another leaves, to be taken in its place
CLEARLY = 0.8

Observed = tuple[Step, Sequence[protocol.Execution]]


def links(steps: Iterable[Observed]) -> tuple[Link, ...]:
    """Return a link for each task that the steps, with executions of theirs, receive from.

    The job's own steps show how fast the tensors of other tasks come. A worker asks for all that it
    needs at the start of a step, and tensors from one task come one after the other. So the time at
    which a tensor has come shows how long all tensors before it took.

    Tensors without bytes, and answers, come when something else is done. They say nothing about a
    link.
    """
    arrivals: dict[tuple[str, str], list[_Arrivals]] = defaultdict(list)
    for step, executions in steps:
        sizes: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for number, node in enumerate(step.nodes):
            between = node.received
            size = sum(tensor.bytes for tensor in node.outputs) if between else 0
            if between and size and not (node.partner and node.partner.answer):
                sizes[between][number] = size
        for tasks, execution in itertools.product(sizes, executions):
            arrivals[tasks].append(_Arrivals.of(execution, sizes[tasks]))
    return tuple(
        _link(*tasks, [a for a in came if len(a.times)]) for tasks, came in arrivals.items()
    )


class _Arrivals(NamedTuple):
    """In one step. `times`: seconds at which they came, rising; `before`: (arrivals, 2), how many
    had come by then and how many bytes."""

    times: NDArray[np.float64]
    before: NDArray[np.float64]

    @classmethod
    def of(cls, execution: protocol.Execution, sizes: Mapping[int, int]) -> _Arrivals:
        came = sorted((end, sizes[node]) for node, *_, end, _ in execution.events if node in sizes)
        times = np.array([end * NANOSECOND for end, _ in came])
        loads = np.cumsum([size for _, size in came])
        return cls(times, np.column_stack((np.arange(1, len(came) + 1), loads)))


def _link(sender: str, receiver: str, arrivals: Sequence[_Arrivals]) -> Link:
    if not arrivals:
        return Link(sender, receiver, 0.0, 0.0, None, 0, 0.0)
    # steps begin more or less late: what is told by them is the slope
    times = np.concatenate([t - t.mean() for t, _ in arrivals])
    before = np.concatenate([x - x.mean(axis=0) for _, x in arrivals])
    each, per_byte = costs = _least_squares(before, times)
    delay = statistics.median(float((t - x @ costs).mean()) for t, x in arrivals)
    variance = float(times @ times)
    missed = float(np.sum((times - before @ costs) ** 2))
    return Link(
        sender,
        receiver,
        delay=max(0.0, delay),
        each=float(each),
        bandwidth=float(1 / per_byte) if per_byte > 0 else None,
        transfers=len(times),
        fit=max(0.0, 1 - missed / variance) if variance else 0.0,
    )


def _least_squares(
    columns: NDArray[np.float64], wanted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Two factors, neither below 0, with the least sum of squared differences. Where one does
    nearly as well as the other, as with tensors of one size, it is the second, of the bytes."""
    best, least = np.zeros(2), float(wanted @ wanted)
    for used, better in (([1], 1.0), ([0], CLEARLY), ([0, 1], 1.0)):
        factors = np.zeros(2)
        factors[used] = np.linalg.lstsq(columns[:, used], wanted, rcond=None)[0]
        missed = float(np.sum((wanted - columns @ factors) ** 2))
        if (factors >= 0).all() and missed < better * least:
            best, least = factors, missed
    return best


# The document

# Python's share of a step's wall time from which on it is worth sampling
PYTHON_SHARE = 0.02


@dataclass(frozen=True)
class Own:
    """The steps under the job's own settings, before anything was changed."""

    targets: tuple[int, ...]
    executions: dict[int, list[protocol.Execution]]
    walls: dict[int, list[float]]
    seconds: dict[str, list[float]]  # by key, each run of it
    parts: dict[int, tuple[doc.Part, ...]]

    @classmethod
    def of(cls, record: Record, targets: Sequence[int], warm_up: int) -> Own:
        """Make it from all that `record` holds now; the first `warm_up` executions of each are left
        out, as far as others are left."""
        executions: dict[int, list[protocol.Execution]] = {}
        walls: dict[int, list[float]] = {}
        seconds: dict[str, list[float]] = defaultdict(list)
        for graph in targets:
            every = record.executions[graph]
            warming = max(warm_up - (record.runs[graph] - len(every)), 0)
            kept = every[min(warming, len(every) - 1) :]
            executions[graph] = kept
            followed = [(a, b) for a, b in pairwise(kept) if b.number <= a.number + 1]
            walls[graph] = [(b.start - a.start) * NANOSECOND for a, b in followed] or [
                span(e) for e in kept
            ]
            for execution in kept:
                for _, key, _, _, start, end, _ in execution.events:
                    seconds[record.keys[key].key].append((end - start) * NANOSECOND)
        others = (e for graph, es in record.executions.items() if graph not in targets for e in es)
        parts = breakdown.parts(record.graphs, executions, others)
        return cls(tuple(targets), executions, walls, dict(seconds), parts)

    @property
    def longest_wall(self) -> float:
        return max(statistics.median(walls) for walls in self.walls.values())

    def heaviest(self, share: float) -> list[str]:
        """Return the fewest keys that make up `share` of all op time."""
        totals = sorted(((sum(s), key) for key, s in self.seconds.items()), reverse=True)
        wanted = share * sum(total for total, _ in totals)
        before = accumulate((total for total, _ in totals), initial=0.0)
        return [key for (_, key), reached in zip(totals, before, strict=False) if reached < wanted]


def assemble(
    record: Record,
    own: Own,
    climb: Climb,
    counting: Counting | None,
    python: PythonLines | None,
    *,
    machine: Machine,
    command: Sequence[str],
    interval: int,
    partial: str | None,
    notes: Sequence[str],
    under: SettingsPlan | None = None,
    roofs: Roofs | None = None,
    lacks: tuple[str, ...] | None = None,
    peers: Sequence[tuple[Record, Own]] = (),
    answers: Collection[Meeting] = (),
    calls: Calls | None = None,
    compiled: Compiled | None = None,
) -> doc.Profile:
    """Return the profile document. `peers`: other processes, each with the one graph that it runs
    in a step. `answers`: messages that tasks send each other only when something has come to them.
    `lacks`: instructions that the framework was compiled without. `calls`: calls of a PyTorch step;
    `compiled`: a step of a script that compiles it."""
    times: dict[str, list[doc.OpTime]] = defaultdict(list)
    for key, (threads, placement), samples in climb.samples():
        times[key].append(
            doc.OpTime(
                threads=threads,
                placement=placement,
                samples=len(samples),
                min=min(samples),
                median=statistics.median(samples),
                spread=relative_spread(samples),
                counts=counting.counts(key, (threads, placement)) if counting else (),
            )
        )
    index: dict[str, int] = {}
    counts: Counter[str] = Counter()
    steps = []
    total = sum(sum(map(op_seconds, es)) for es in own.executions.values())
    for graph in own.targets:
        lines = python.lines() if python and graph == own.targets[0] else ()
        tried = tuple(doc.Tried(*case, summary(samples)) for case, samples in climb.steps(graph))
        steps.append(_step(record, own, graph, total, index, counts, lines, answers, tried))
    if python and python_matters(steps[0]) and python.why:
        notes = (*notes, f"the Python lines that take the time are unknown: {python.why}")
    others = []
    for other, theirs in peers:
        (graph,) = theirs.targets
        total = sum(map(op_seconds, theirs.executions[graph]))
        others.append(_step(other, theirs, graph, total, index, Counter(), (), answers))
    # the measured process last, so that its values prevail
    seconds, keys = {}, {}
    for one, its in (*peers, (record, own)):
        seconds.update(its.seconds)
        keys.update({key.key: (one, key) for key in one.keys.values()})
    ops = tuple(
        doc.Op(
            key=text,
            type=key.op,
            inputs=_inputs(key.inputs),
            count=counts[text],
            output_bytes=one.output_bytes.get(key.id, 0),
            own=statistics.median(seconds[text]) if text in seconds else None,
            times=tuple(sorted(times.get(text, ()), key=lambda t: (t.threads, t.placement))),
        )
        for text in index
        for one, key in (keys[text],)
    )
    settings = record.settings()
    kept = [e for es in own.executions.values() for e in es]
    return doc.Profile(
        schema=doc.SCHEMA,
        created=documents.now(),
        dltune=__version__,
        partial=partial,
        command=tuple(command),
        machine=machine,
        framework=record.framework(lacks),
        settings=doc.Settings(
            intra=settings.intra if settings else len(machine.cores),
            inter=settings.inter if settings else len(machine.cores),
        ),
        interval=interval,
        steps=tuple(steps),
        ops=ops,
        memory=_memory(kept, calls, compiled),
        notes=(*notes, *record.complaints),
        counters=counting.document() if counting else None,
        under=under,
        roofs=roofs,
        peers=tuple(others),
        links=links(zip(steps, map(own.executions.__getitem__, own.targets), strict=True)),
        calls=calls,
        compiled=compiled,
    )


def _memory(
    kept: Sequence[protocol.Execution], calls: Calls | None, compiled: Compiled | None
) -> doc.Memory | None:
    if compiled is not None:
        return doc.Memory(compiled.live, compiled.peak)
    if calls is not None:
        return doc.Memory(calls.live, max(calls.levels, default=calls.live))
    if not any(e.peak for e in kept):
        return None
    return doc.Memory(round(statistics.median(e.live for e in kept)), max(e.peak for e in kept))


def _step(
    record: Record,
    own: Own,
    graph: int,
    total: float,
    index: dict[str, int],
    counts: Counter[str],
    lines: tuple[doc.Line, ...],
    answers: Collection[Meeting],
    tried: tuple[doc.Tried, ...] = (),
) -> doc.Step:
    told = record.graphs[graph]
    bytes_of = {k.key: record.output_bytes.get(k.id, 0) for k in record.keys.values()}
    executions = own.executions[graph]
    # the execution with the median span represents all
    sampled = sorted(executions, key=span)[len(executions) // 2]
    keys: dict[int, Counter[str]] = defaultdict(Counter)
    for execution in executions:
        for place, key, *_ in execution.events:
            keys[place][record.keys[key].key] += 1
    ran: dict[int, list[int]] = defaultdict(list)  # by node, its events in that one
    for at, event in enumerate(sampled.events):
        ran[event[0]].append(at)
    nodes = []
    for number, node in enumerate(told.nodes):
        outputs = tuple(
            doc.Tensor(o.dtype, o.bytes, None if o.alias < 0 else o.alias)
            for o in record.outputs.get((graph, number), ())
        )
        mine = [sampled.events[at] for at in ran[number]]
        op, repeats, output = None, 0.0, 0
        if number in keys:
            usual = keys[number].most_common(1)[0][0]
            op = index.setdefault(usual, len(index))
            repeats = keys[number].total() / len(executions)
            counts[usual] += round(repeats)
            output = sum(tensor.bytes for tensor in outputs) if outputs else bytes_of[usual]
        nodes.append(
            doc.Node(
                name=node.name,
                type=node.type,
                op=op,
                inputs=tuple(node.inputs),
                control=tuple(node.control),
                output_bytes=output,
                repeats=repeats,
                start=min(event[4] for event in mine) * NANOSECOND if mine else None,
                end=max(event[5] for event in mine) * NANOSECOND if mine else None,
                slots=tuple(node.slots) if any(node.slots) else (),
                outputs=outputs,
                partner=_partner(node, answers),
                live=sampled.levels[ran[number][-1]] if mine and sampled.levels else None,
                scratch=max((sampled.scratch[at] for at in ran[number]), default=0)
                if sampled.scratch
                else None,
                stateful=node.stateful,
            )
        )
    return doc.Step(
        signature=told.signature,
        name=told.name,
        executions=len(executions),
        share=sum(map(op_seconds, executions)) / total if total > 0 else 0.0,
        wall=summary(own.walls[graph]),
        span=summary([span(e) for e in executions]),
        nodes=tuple(nodes),
        parts=own.parts.get(graph, ()),
        lines=lines,
        device=told.device,
        tried=tried,
        collectives=_collectives(executions, nodes),
    )


def _collectives(
    executions: Sequence[protocol.Execution], nodes: Sequence[doc.Node]
) -> tuple[doc.Collective, ...]:
    """They begin in the order in which they were asked for. Those that go on beside one another
    share the time by their bytes."""
    asking = [number for number, node in enumerate(nodes) if node.type == doc.ALLREDUCE]
    took: dict[int, list[float]] = defaultdict(list)
    for execution in executions:
        if len(execution.collectives) != len(asking):
            continue
        for numbers, seconds in _together(asking, execution.collectives):
            bytes = [nodes[number].output_bytes for number in numbers]
            for number, part in zip(numbers, bytes, strict=True):
                share = part / sum(bytes) if sum(bytes) else 1 / len(bytes)
                took[number].append(seconds * share)
    return tuple(
        doc.Collective(node, nodes[node].output_bytes, summary(seconds))
        for node, seconds in took.items()
    )


def _together(
    asking: Sequence[int], times: Sequence[tuple[int, int]]
) -> Iterator[tuple[list[int], float]]:
    """Those that go on beside one another, and the seconds that they take together."""
    numbers: list[int] = []
    began = until = 0
    for number, (start, end) in zip(asking, sorted(times), strict=True):
        if numbers and start >= until:
            yield numbers, (until - began) * NANOSECOND
            numbers = []
        if not numbers:
            began, until = start, end
        numbers.append(number)
        until = max(until, end)
    if numbers:
        yield numbers, (until - began) * NANOSECOND


def _partner(node: protocol.Node, answers: Collection[Meeting]) -> doc.Partner | None:
    met = node.partner
    if met is None:
        return None
    answer = node.type == "_Recv" and (met.rendezvous, met.sender, met.receiver) in answers
    return doc.Partner(met.rendezvous, met.sender, met.receiver, met.members, answer)


def python_matters(step: doc.Step) -> bool:
    """Whether Python between executions takes enough of the step to ask which line it is."""
    python = sum(part.seconds for part in step.parts if part.name == "python")
    return python >= PYTHON_SHARE * sum(part.seconds for part in step.parts) > 0


def _inputs(text: str) -> tuple[str, ...]:
    """The inputs of a key, "float[64,8],int32[2]" as ("float[64,8]", "int32[2]")."""
    return tuple(re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text))
