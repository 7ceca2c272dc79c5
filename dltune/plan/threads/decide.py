"""Decision on threads: strategies of the paper, simulation of all options, and explanations.

`choose` simulates every setting and strategy, and takes the option that is predicted to be fastest.
The strategies are the paper's four (section III-D); each builds on the choices of the one before.
`explain` reports why an op got its threads, and next to which ops it is predicted to run.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.base.formatting import counted
from dltune.frameworks.tensorflow import runtime
from dltune.schemas.machine import Machine
from dltune.schemas.plan import CANDIDATES, Candidate, OpPlan, Prediction, Threads, Uniform
from dltune.schemas.profile import Op, Placement
from dltune.simulate.workload import SMALL, Outcome, Workload

# The paper's four strategies (section III-D), each on the choices of the one before

# "the difference in the number of threads is larger than 2 and 2 is an empirical value": an op
# stays within this of strategy 2's count.
DIFFERENCE = 2


def per_instance(workload: Workload, most: int | None = None) -> list[Candidate | None]:
    """Strategy 1: each op instance on the threads that run it fastest.

    Per op the fastest thread count and placement; None for ops that are not controlled. Ops whose
    count is held keep it. `most`: the threads an op may have at most.
    """
    counts: dict[Placement, list[int]] = {"spread": [], "shared": []}
    for threads, placements in workload.offered.items():
        for placement in placements if most is None or threads <= most else ():
            counts[placement].append(threads)
    found: list[Candidate | None] = []
    for index, curve in enumerate(workload.curves):
        if curve is None:
            found.append(None)
        elif index in workload.held:
            found.append(workload.placed(curve, workload.held[index]))
        else:
            found.append(curve.best(curve.corners(counts)))
    return found


def leaders(workload: Workload, fastest: Sequence[Candidate | None]) -> dict[str, int]:
    """Per op type the index of its most time-consuming instance (each at its own best)."""
    found: dict[str, int] = {}
    for index, choice in enumerate(fastest):
        if choice is None or index in workload.held:
            continue
        kind = workload.ops[index].type
        best = fastest[found[kind]] if kind in found else None
        if best is None or choice.seconds > best.seconds:
            found[kind] = index
    return found


def per_type(workload: Workload, fastest: Sequence[Candidate | None]) -> list[Candidate | None]:
    """Strategy 2: one thread count per op type, so that it seldom changes.

    The count is the one that runs the type's most time-consuming instance fastest. The placement
    stays each instance's own, the better one: only the number of threads is costly to change.
    `fastest`: of strategy 1. None for ops not controlled.
    """
    leading = leaders(workload, fastest)
    found = list(fastest)
    for index, curve in enumerate(workload.curves):
        if curve is not None and index not in workload.held:
            leader = fastest[leading[workload.ops[index].type]]
            assert leader is not None  # it has a curve
            found[index] = workload.placed(curve, leader.threads)
    return found


def candidates(
    workload: Workload, chosen: Sequence[Candidate | None]
) -> dict[int, tuple[Candidate, ...]]:
    """Strategy 3: what each op may choose from when ops run beside each other.

    By index of each op that is worth admitting: the three fastest ways to run it near strategy
    2's count, the fastest first. The choosing itself happens while the job runs, by the scheduler
    of dltune/native/corun.h.
    """
    cases = {
        n: [(m, p) for m in _near(n, workload.cores) for p in workload.offered[m]]
        for n in {c.threads for i, c in enumerate(chosen) if c and i not in workload.held}
    }
    found: dict[int, tuple[Candidate, ...]] = {}
    for index, (curve, choice) in enumerate(zip(workload.curves, chosen, strict=True)):
        if curve is None or choice is None or workload.small(index):
            continue
        if index in workload.held:
            found[index] = (choice,)
            continue
        ways = (Candidate(n, p, curve.seconds(n, p)) for n, p in cases[choice.threads])
        found[index] = tuple(sorted(ways, key=lambda c: (c.seconds, c.threads))[:CANDIDATES])
    return found


def _near(threads: int, cores: int) -> range:
    return range(max(1, threads - DIFFERENCE), min(cores, threads + DIFFERENCE) + 1)


def why_no_hyperthreads(machine: Machine) -> str | None:
    """Strategy 4 runs small ops on the second hardware threads of busy cores. Which op is decided
    while the job runs (dltune/native/corun.h); here only, why there can be none; None: it applies.
    """
    if any(len(core.cpus) > 1 for core in machine.cores):
        return None
    return (
        f"the smt strategy does not apply: no core of {machine.name} offers this job a second "
        "hardware thread"
    )


# Simulation of every setting and strategy, and the choice among them

log = logging.getLogger(__name__)

STRATEGIES = (
    "auto",
    "uniform",
    "per-op",
    "per-type",
    "per-op+co-run",
    "per-op+co-run+smt",
    "per-type+co-run",
    "per-type+co-run+smt",
)
# Executor slots that strategy 3 is tried with. An op that waits for admission holds one, so there
# must be more than ops that run; each further one lets more small ops run at once.
SLOTS = (2, 4, 8, 16)
# A per-op plan must be predicted faster than the best uniform setting by this part: enforcing it
# costs up to 1 % ("limited overhead (less than 1%)", section IV-A).
ENFORCEMENT = 0.01
# Settings are alike whose predictions differ by less than this part.
TIE = 0.005
# Joins a strategy's name and the thread count it is capped at: "per-type+co-run+cap=16".
CAP = "+cap="


@dataclass(frozen=True)
class Option:
    """One way to run the job, and what it is predicted to take.

    `choices` per op (None: not controlled) is empty for a uniform setting, `candidates` (by op
    index) where ops do not co-run under strategy 3.
    """

    setting: str
    uniform: Uniform
    outcome: Outcome
    choices: Sequence[Candidate | None] = ()
    candidates: Mapping[int, tuple[Candidate, ...]] = dataclasses.field(default_factory=dict)
    hyperthreads: bool = False

    @property
    def seconds(self) -> float:
        return self.outcome.seconds


@dataclass(frozen=True)
class Decision:
    """`options` in the table's order, `chosen` among them; `best_uniform` is what TensorFlow can be
    told without dltune. `remarks` are sentences for the reader."""

    options: tuple[Option, ...]
    chosen: Option
    best_uniform: Option
    remarks: tuple[str, ...]

    def threads(self, workload: Workload) -> Threads:
        """The plan's section."""
        chosen = self.chosen
        recommended = next(o for o in self.options if o.setting == "recommended")
        return Threads(
            strategy=chosen.setting,
            uniform=chosen.uniform,
            corun=bool(chosen.candidates),
            hyperthreads=chosen.hyperthreads,
            small=SMALL,
            ops=tuple(_op_plans(workload, chosen)),
            predictions=tuple(
                Prediction(
                    setting=option.setting,
                    seconds=option.seconds,
                    speedup=recommended.seconds / option.seconds if option.seconds else 1.0,
                    corunning=option.outcome.corunning,
                )
                for option in self.options
            ),
        )


def choose(workload: Workload, strategy: str = "auto", *, bitwise: bool = False) -> Decision:
    """Simulate and decide.

    `strategy` is one of STRATEGIES. "auto" never takes one that is predicted slower than the best
    uniform setting; a strategy asked for by name is taken even so, with a remark. `bitwise` leaves
    every op the job's own thread count, and with it the order of its sums.
    Raises UsageError when the strategy cannot be applied to this machine or with `bitwise`.
    """
    machine = workload.machine
    why_not = why_no_hyperthreads(machine)
    if why_not and strategy.endswith("smt"):
        raise UsageError(why_not, remedy="use --strategy auto")
    if bitwise and strategy not in ("auto", "uniform"):
        raise UsageError(
            f"--strategy {strategy} changes thread counts, which --bitwise forbids",
            remedy="leave out --bitwise or --strategy",
        )
    remarks = [f"note: {why_not}"] if why_not else []
    intra = workload.own.intra if bitwise else None
    best_uniform = _fewest(_uniform(workload, u) for u in runtime.thread_grid(machine, intra))
    if workload.varying is not None:
        # other batches may be why one number of threads was faster
        own = _uniform(workload, runtime.own_threads(workload.own, machine))
        if own.seconds * (1 - workload.varying) <= best_uniform.seconds:
            best_uniform = own
    options = [
        _uniform(workload, runtime.default_threads(machine), "default"),
        _uniform(workload, runtime.recommended_threads(machine), "recommended"),
        best_uniform,
    ]
    if bitwise:
        held = {i: workload.own.intra for i, c in enumerate(workload.curves) if c is not None}
        workload = dataclasses.replace(workload, held=held)
    strategies = _bitwise(workload) if bitwise else _strategies(workload, strategy)
    if workload.varying is not None and strategy == "auto":
        strategies = []
    options += strategies
    if strategy == "uniform":
        chosen = best_uniform
    elif strategy == "auto":
        fastest = _best([*strategies, best_uniform])
        faster = fastest.seconds <= best_uniform.seconds * (1 - ENFORCEMENT)
        chosen = fastest if faster else best_uniform
    else:
        chosen = next(o for o in strategies if o.setting == strategy)
        if chosen.seconds > best_uniform.seconds:
            remarks.append(
                f"note: the plan uses {strategy} as requested, but {best_uniform.setting} is "
                "predicted to be faster"
            )
    for option in options:
        log.debug("%s: %.6g s predicted", option.setting, option.seconds)
    log.debug("chosen: %s", chosen.setting)
    return Decision(tuple(options), chosen, best_uniform, tuple(remarks))


def _uniform(workload: Workload, setting: Uniform, name: str | None = None) -> Option:
    outcome = workload.uniform(setting.intra, setting.inter)
    return Option(name or f"uniform {setting.intra}x{setting.inter}", setting, outcome)


def _strategies(workload: Workload, asked: str) -> list[Option]:
    """Per-type, +co-run, +smt where there are hardware threads, and what else was asked for."""
    fastest = per_instance(workload)
    alike = per_type(workload, fastest)
    names = ["per-type", *_with_smt(workload, "per-type+co-run")]
    if asked in STRATEGIES[2:] and asked not in names:
        names.append(asked)
    found = [planned(workload, name, alike if "per-type" in name else fastest) for name in names]
    if asked == "auto":
        found += _capped(workload, found)
    return found


def _capped(workload: Workload, uncapped: Sequence[Option]) -> list[Option]:
    """Strategies 1 to 3 (and 4) where no op may have more than some number of threads.

    An op at its fastest can hold cores that would do more for its neighbours. The paper's strategy
    3 stays within two threads of strategy 2, so it cannot give them up; a cap, the same for all
    ops, can. The best cap of the uniform grid's counts is kept if it is predicted to gain.
    """
    caps = sorted({u.intra for u in runtime.thread_grid(workload.machine)} - {workload.cores})
    chosen = {cap: per_type(workload, per_instance(workload, cap)) for cap in caps}
    found = []
    for option in uncapped:
        if not option.candidates or not caps:
            continue
        name, slots = option.setting, (option.uniform.inter,)
        # the cap first, in as many slots as without one; then the slots
        near = _best(planned(workload, f"{name}{CAP}{cap}", chosen[cap], slots) for cap in caps)
        best = planned(workload, near.setting, near.choices)
        if best.seconds < option.seconds:
            found.append(best)
    return found


def _bitwise(workload: Workload) -> list[Option]:
    """The job's own thread count for every op; only placement and co-running are decided."""
    choices = per_instance(workload)
    return [planned(workload, name, choices) for name in _with_smt(workload, "bitwise+co-run")]


def _with_smt(workload: Workload, name: str) -> list[str]:
    """That strategy, and with strategy 4 on top where there are hardware threads for it."""
    return [name] if why_no_hyperthreads(workload.machine) else [name, f"{name}+smt"]


def planned(
    workload: Workload,
    name: str,
    choices: Sequence[Candidate | None],
    slots: Sequence[int] = SLOTS,
) -> Option:
    """The option of that name ("co-run" in it: ops co-run, "smt": on hyper-threads too).

    `slots`: the executor slots to try strategy 3 with.
    """
    base = runtime.recommended_threads(workload.machine)
    intra = workload.own.intra if name.startswith("bitwise") else base.intra
    if "co-run" not in name:
        own_pool = workload.alike(base.intra)
        enforced = [
            own if choice is None or workload.small(index) else choice
            for index, (choice, own) in enumerate(zip(choices, own_pool, strict=True))
        ]
        # those of several slots would run on the same cores
        return Option(name, Uniform(base.intra, 1), workload.fifo(enforced, 1), choices)
    near = candidates(workload, choices)
    second = "smt" in name
    return _best(
        Option(
            name,
            Uniform(intra, inter),
            workload.corun(choices, near, inter, hyperthreads=second),
            choices,
            near,
            second,
        )
        for inter in slots
    )


def _fewest(options: Iterable[Option]) -> Option:
    """The fastest; of those that are as fast but for `TIE`, the one of the fewest threads, which
    have to be woken, too."""
    every = list(options)
    fastest = _best(every)
    near = [one for one in every if one.seconds <= fastest.seconds * (1 + TIE)]
    return min(near, key=lambda one: (one.uniform.intra * one.uniform.inter, one.seconds))


def _best(options: Iterable[Option]) -> Option:
    return min(options, key=lambda option: (option.seconds, option.uniform.inter))


def _op_plans(workload: Workload, chosen: Option) -> list[OpPlan]:
    """An entry for every op that is controlled one by one, the most time-consuming first."""
    found = [
        (
            -op.count * choice.seconds,
            op.key,
            OpPlan(
                key=op.key,
                threads=choice.threads,
                placement=choice.placement,
                seconds=choice.seconds,
                serial=workload.serial(index),
                candidates=chosen.candidates.get(index, ()),
            ),
        )
        for index, (op, choice) in enumerate(zip(workload.ops, chosen.choices, strict=False))
        if choice is not None and not workload.small(index)
    ]
    return [plan for _, _, plan in sorted(found, key=lambda entry: entry[:2])]


# Explanation of the decision for single ops

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
