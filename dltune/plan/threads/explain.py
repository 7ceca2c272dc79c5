"""Why an op got its threads, and beside which others it is predicted to run."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from dltune.base.errors import UsageError
from dltune.base.formatting import counted
from dltune.plan.threads.decide import Decision
from dltune.plan.threads.strategies import leaders, per_instance
from dltune.schemas.plan import Candidate
from dltune.schemas.profile import Op
from dltune.simulate.workload import SMALL, Workload

# how many ops and how many neighbours are told at most
OPS = 8
NEIGHBOURS = 6


def explain(workload: Workload, decision: Decision, wanted: str) -> list[str]:
    """Lines about the ops whose key is or contains `wanted`, or whose type it is.

    The most time-consuming come first. Raises UsageError when there is none.
    """
    matching = _matching(workload.ops, wanted)
    matching.sort(key=lambda index: -workload.ops[index].count * workload.serial(index))
    fastest = per_instance(workload)
    leading = leaders(workload, fastest)
    lines: list[str] = []
    for index in matching[:OPS]:
        op = workload.ops[index]
        lines.append(op.key)
        lines.append(
            f"  {op.type}, runs {op.count}x per round, inputs: {', '.join(op.inputs) or '-'}"
        )
        best = fastest[index]
        if best is None:
            lines.append(
                "  not planned: the op is asynchronous or can wait for another op; the simulation "
                f"assumes that it takes {_time(workload.fixed[index])} and uses no core"
            )
            continue
        measured = sorted(op.times, key=lambda time: (time.threads, time.placement))
        times = ", ".join(f"{t.threads} {t.placement} {_time(t.min)}" for t in measured)
        lines.append(f"  measured: {times}")
        if index in workload.held:
            lines.append(
                f"  keeps its {counted(best.threads, 'thread')}: no other count is allowed on this "
                "machine or with --bitwise"
            )
        else:
            lines.append(
                f"  per-op: fastest on {counted(best.threads, 'thread')}, {best.placement}"
                + _bar(workload, op, best)
            )
            leader = leading[op.type]
            lines.append(
                "  per-type: this op sets the thread count of its type"
                if leader == index
                else f"  per-type: {workload.ops[leader].key} sets the thread count of this type"
            )
        lines += (f"  {text}" for text in _outcome(workload, decision, index))
    if len(matching) > OPS:
        lines.append(f"{len(matching) - OPS} more ops match {wanted!r}")
    return lines


def _matching(ops: tuple[Op, ...], wanted: str) -> list[int]:
    for test in (
        lambda op: op.key == wanted,
        lambda op: op.type == wanted,
        lambda op: wanted.lower() in op.key.lower(),
    ):
        if found := [index for index, op in enumerate(ops) if test(op)]:
            return found
    types = collections.Counter(op.type for op in ops)
    raise UsageError(
        f"--explain {wanted}: no op has this key or type, or a key that contains it",
        remedy="use an op type of this profile, such as "
        + ", ".join(kind for kind, _ in types.most_common(12)),
    )


def _bar(workload: Workload, op: Op, best: Candidate) -> str:
    """What the model predicts there, and how far off that may be."""
    if workload.model is None:
        return ""
    try:
        seconds, error = workload.model.predict(op.key, best.threads, best.placement)
    except KeyError:
        return ""
    return f": {_time(seconds)} when it runs alone, +/- {_time(error)}"


def _outcome(workload: Workload, decision: Decision, index: int) -> Iterator[str]:
    chosen = decision.chosen
    if not chosen.choices:
        yield (
            f"plan: {chosen.setting} is predicted to be fastest for the whole job, so this op runs "
            f"on {counted(chosen.uniform.intra, 'thread')}, like all others"
        )
        return
    if workload.small(index):
        yield (
            f"plan: the framework's thread pool runs this op; it takes less than {_time(SMALL)} on "
            "one thread, so moving it to other cores would cost more than it gains"
        )
        return
    choice = chosen.choices[index]
    assert choice is not None  # it has a curve
    yield (
        f"plan ({chosen.setting}): {counted(choice.threads, 'thread')}, {choice.placement}, "
        f"predicted {_time(choice.seconds)}"
    )
    if not chosen.candidates:
        yield "the op runs alone: this plan does not use co-run"
        return
    ways = ", ".join(
        f"{c.threads} {c.placement} {_time(c.seconds)}" for c in chosen.candidates.get(index, ())
    )
    yield f"co-run chooses at run time from: {ways}"
    beside = _beside(workload, decision, index)
    if beside:
        yield "predicted to run at the same time: " + ", ".join(
            f"{kind} ({part:.0%} of its time)" for kind, part in beside[:NEIGHBOURS]
        )
    else:
        yield "predicted to run alone: no other op is ready or fits on the idle cores"


def _beside(workload: Workload, decision: Decision, index: int) -> list[tuple[str, float]]:
    """Op types that run while op `index` does and the part of its time they take, largest first."""
    shared: dict[str, float] = collections.defaultdict(float)
    total = 0.0
    outcome = decision.chosen.outcome
    for step, timeline in zip(workload.steps, outcome.timelines, strict=True):
        start, end = timeline.start, timeline.end
        works = [
            (task, node.op)
            for task, node in enumerate(step.nodes)
            if node.op is not None and workload.curves[node.op] is not None
        ]
        for task in (task for task, op in works if op == index):
            total += end[task] - start[task]
            for other, op in works:
                overlap = min(end[task], end[other]) - max(start[task], start[other])
                if other != task and overlap > 0:
                    shared[workload.ops[op].type] += overlap
    return sorted(((kind, t / total) for kind, t in shared.items()), key=lambda found: -found[1])


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
