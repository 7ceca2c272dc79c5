"""Decision on threads: strategies of the paper, simulation of all options, and explanations.

`choose` simulates every setting and strategy, and takes the option that is predicted to be fastest.
A `Strategy` combines the paper's four (section III-D); each of them builds on the choices of the
one before. `explain` reports why an op got its threads, and next to which ops it is predicted to
run.
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


@dataclass(frozen=True)
class Strategy:
    """Combination of the paper's strategies.

    `per_type`: all ops of a type get one thread count (strategy 2); without it, each op gets its
    own (strategy 1). `corun`: ops also run at the same time (strategy 3). `smt`: small ops also use
    the second hardware threads of busy cores (strategy 4, which requires strategy 3). `cap`: the
    most threads of an op (None: no limit). `bitwise`: every op keeps the job's own thread count.
    """

    per_type: bool = False
    corun: bool = False
    smt: bool = False
    cap: int | None = None
    bitwise: bool = False

    def __str__(self) -> str:
        """Return the name in a plan and on the command line."""
        counts = "bitwise" if self.bitwise else "per-type" if self.per_type else "per-op"
        parts = {"co-run": self.corun, "smt": self.smt, f"cap={self.cap}": self.cap is not None}
        return "+".join([counts, *(name for name, applies in parts.items() if applies)])


# the strategies that users can name
NAMED = {
    str(strategy): strategy
    for strategy in (
        Strategy(),
        Strategy(per_type=True),
        Strategy(corun=True),
        Strategy(corun=True, smt=True),
        Strategy(per_type=True, corun=True),
        Strategy(per_type=True, corun=True, smt=True),
    )
}
CHOICES = ("auto", "uniform", *NAMED)  # of --strategy


def per_instance(workload: Workload, most: int | None = None) -> list[Candidate | None]:
    """Return strategy 1's choices: each op instance on the threads that run it fastest.

    Each op gets its fastest thread count and placement; None: it is not controlled. Ops whose count
    is held keep it. `most`: the most threads of an op.
    """
    counts: dict[Placement, list[int]] = {"spread": [], "shared": []}
    for threads, placements in workload.offered.items():
        for placement in placements if most is None or threads <= most else ():
            counts[placement].append(threads)
    choices: list[Candidate | None] = []
    for index, curve in enumerate(workload.curves):
        if curve is None:
            choices.append(None)
        elif index in workload.held:
            choices.append(workload.placed(curve, workload.held[index]))
        else:
            choices.append(curve.best(curve.corners(counts)))
    return choices


def leaders(workload: Workload, fastest: Sequence[Candidate | None]) -> dict[str, int]:
    """Return the index of each op type's most time-consuming instance (each at its own best)."""
    leading: dict[str, int] = {}
    for index, choice in enumerate(fastest):
        if choice is None or index in workload.held:
            continue
        kind = workload.ops[index].type
        longest = fastest[leading[kind]] if kind in leading else None
        if longest is None or choice.seconds > longest.seconds:
            leading[kind] = index
    return leading


def per_type(workload: Workload, fastest: Sequence[Candidate | None]) -> list[Candidate | None]:
    """Return strategy 2's choices: one thread count per op type, so that it seldom changes.

    The count is the one that runs the type's most time-consuming instance fastest. The placement
    stays each instance's own, the better one: only the number of threads is costly to change.
    `fastest`: strategy 1's choices. None: the op is not controlled.
    """
    leading = leaders(workload, fastest)
    choices = list(fastest)
    for index, curve in enumerate(workload.curves):
        if curve is not None and index not in workload.held:
            leader = fastest[leading[workload.ops[index].type]]
            assert leader is not None  # it has a curve
            choices[index] = workload.placed(curve, leader.threads)
    return choices


def candidates(
    workload: Workload, chosen: Sequence[Candidate | None]
) -> dict[int, tuple[Candidate, ...]]:
    """Return strategy 3's candidates for ops that run at the same time, by index of the op.

    Each op that is worth admitting has the three fastest ways to run it near strategy 2's count,
    the fastest first. The scheduler of dltune/native/corun.h chooses among them while the job runs.
    """
    cases = {
        n: [(m, p) for m in _near(n, workload.cores) for p in workload.offered[m]]
        for n in {c.threads for i, c in enumerate(chosen) if c and i not in workload.held}
    }
    by_op: dict[int, tuple[Candidate, ...]] = {}
    for index, (curve, choice) in enumerate(zip(workload.curves, chosen, strict=True)):
        if curve is None or choice is None or workload.small(index):
            continue
        if index in workload.held:
            by_op[index] = (choice,)
            continue
        ways = (Candidate(n, p, curve.seconds(n, p)) for n, p in cases[choice.threads])
        by_op[index] = tuple(sorted(ways, key=lambda c: (c.seconds, c.threads))[:CANDIDATES])
    return by_op


def _near(threads: int, cores: int) -> range:
    return range(max(1, threads - DIFFERENCE), min(cores, threads + DIFFERENCE) + 1)


def why_no_hyperthreads(machine: Machine) -> str | None:
    """Return why strategy 4, small ops on the second hardware threads of busy cores, does not apply
    to a machine; None: it applies. dltune/native/corun.h chooses the ops while the job runs."""
    if any(len(core.cpus) > 1 for core in machine.cores):
        return None
    return (
        f"the smt strategy does not apply: no core of {machine.name} offers this job a second "
        "hardware thread"
    )


# Simulation of every setting and strategy, and the choice among them

log = logging.getLogger(__name__)

# Numbers of executor slots that strategy 3 is tried with. An op that waits for admission holds a
# slot, so there must be more slots than running ops; each further slot lets more small ops run at
# the same time.
SLOTS = (2, 4, 8, 16)
# A per-op plan must be predicted faster than the best uniform setting by this part: enforcing it
# costs up to 1 % ("limited overhead (less than 1%)", section IV-A).
ENFORCEMENT = 0.01
# Settings are alike if their predictions differ by less than this part.
TIE = 0.005


@dataclass(frozen=True)
class Option:
    """A way to run the job, and its predicted outcome.

    `setting`: its name. `strategy`: None for a uniform setting, whose `choices` are empty.
    `choices`: per op (None: not controlled). `candidates`: by op index; empty without strategy 3.
    """

    setting: str
    uniform: Uniform
    outcome: Outcome
    strategy: Strategy | None = None
    choices: Sequence[Candidate | None] = ()
    candidates: Mapping[int, tuple[Candidate, ...]] = dataclasses.field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.outcome.seconds

    @property
    def hyperthreads(self) -> bool:
        return self.strategy is not None and self.strategy.smt


@dataclass(frozen=True)
class Selection:
    """Simulated `options` in the table's order, and the `chosen` one. `best_uniform`: the fastest
    setting that the framework has without dltune. `remarks`: sentences for users."""

    options: tuple[Option, ...]
    chosen: Option
    best_uniform: Option
    remarks: tuple[str, ...]

    def threads(self, workload: Workload) -> Threads:
        """Return the plan's section."""
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


def choose(workload: Workload, strategy: str = "auto", *, bitwise: bool = False) -> Selection:
    """Simulate all options and choose one.

    `strategy` is one of CHOICES. "auto" never takes a strategy that is predicted slower than the
    best uniform setting; a requested strategy is taken even so, with a remark. `bitwise` leaves
    every op the job's own thread count, and with it the order of its sums.
    Raises UsageError when the strategy cannot be applied to this machine or with `bitwise`.
    """
    machine = workload.machine
    requested = NAMED.get(strategy)
    why_not = why_no_hyperthreads(machine)
    if why_not and requested and requested.smt:
        raise UsageError(why_not, remedy="use --strategy auto")
    if bitwise and requested:
        raise UsageError(
            f"--strategy {strategy} changes thread counts, which --bitwise forbids",
            remedy="leave out --bitwise or --strategy",
        )
    remarks = [f"note: {why_not}"] if why_not else []
    intra = workload.own.intra if bitwise else None
    best_uniform = _fewest(_uniform(workload, u) for u in runtime.thread_grid(machine, intra))
    if workload.varying is not None:
        # other batches can be the reason why a number of threads was faster
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
    strategies = _bitwise(workload) if bitwise else _strategies(workload, requested)
    if strategy == "auto":
        if workload.varying is not None:
            strategies = []
        elif not bitwise:
            strategies += _capped(workload, strategies)
    options += strategies
    if requested:
        chosen = next(option for option in strategies if option.strategy == requested)
        if chosen.seconds > best_uniform.seconds:
            remarks.append(
                f"note: the plan uses {strategy} as requested, but {best_uniform.setting} is "
                "predicted to be faster"
            )
    elif strategy == "uniform":
        chosen = best_uniform
    else:
        fastest = _best([*strategies, best_uniform])
        faster = fastest.seconds <= best_uniform.seconds * (1 - ENFORCEMENT)
        chosen = fastest if faster else best_uniform
    for option in options:
        log.debug("%s: %.6g s predicted", option.setting, option.seconds)
    log.debug("chosen: %s", chosen.setting)
    return Selection(tuple(options), chosen, best_uniform, tuple(remarks))


def _uniform(workload: Workload, setting: Uniform, name: str | None = None) -> Option:
    outcome = workload.uniform(setting.intra, setting.inter)
    return Option(name or setting.setting, setting, outcome)


def _strategies(workload: Workload, requested: Strategy | None) -> list[Option]:
    """Simulate per-type, then +co-run and +smt where they apply, and the requested strategy."""
    fastest = per_instance(workload)
    alike = per_type(workload, fastest)
    both = Strategy(per_type=True, corun=True)
    strategies = dict.fromkeys([Strategy(per_type=True), *_with_smt(workload, both)])
    if requested:
        strategies[requested] = None
    return [planned(workload, each, alike if each.per_type else fastest) for each in strategies]


def _capped(workload: Workload, uncapped: Sequence[Option]) -> list[Option]:
    """Simulate strategies 2 and 3 (and 4) with a limit on the threads of each op.

    An op at its fastest can hold cores that would do more for its neighbours. The paper's strategy
    3 stays within two threads of strategy 2, so it cannot give them up; a cap, the same for all
    ops, can. The best cap of the uniform grid's counts is kept if it is predicted to gain.
    """
    caps = sorted({u.intra for u in runtime.thread_grid(workload.machine)} - {workload.cores})
    choices = {cap: per_type(workload, per_instance(workload, cap)) for cap in caps}
    gains = []
    for option in uncapped:
        if option.strategy is None or not option.candidates or not caps:
            continue
        # the cap first, in as many slots as without it; then the slots
        slots = (option.uniform.inter,)
        capped = {cap: dataclasses.replace(option.strategy, cap=cap) for cap in caps}
        near = _best(planned(workload, capped[cap], choices[cap], slots) for cap in caps)
        assert near.strategy is not None
        best = planned(workload, near.strategy, near.choices)
        if best.seconds < option.seconds:
            gains.append(best)
    return gains


def _bitwise(workload: Workload) -> list[Option]:
    """Simulate the job's own thread count for every op; only placement and co-runs are decided."""
    choices = per_instance(workload)
    strategies = _with_smt(workload, Strategy(bitwise=True, corun=True))
    return [planned(workload, strategy, choices) for strategy in strategies]


def _with_smt(workload: Workload, strategy: Strategy) -> list[Strategy]:
    """Return the strategy, and the same with strategy 4 if the machine has hardware threads."""
    if why_no_hyperthreads(workload.machine):
        return [strategy]
    return [strategy, dataclasses.replace(strategy, smt=True)]


def planned(
    workload: Workload,
    strategy: Strategy,
    choices: Sequence[Candidate | None],
    slots: Sequence[int] = SLOTS,
) -> Option:
    """Simulate a strategy with the thread counts and placements of `choices`.

    `slots`: the numbers of executor slots to try strategy 3 with.
    """
    base = runtime.recommended_threads(workload.machine)
    if not strategy.corun:
        own_pool = workload.alike(base.intra)
        enforced = [
            own if choice is None or workload.small(index) else choice
            for index, (choice, own) in enumerate(zip(choices, own_pool, strict=True))
        ]
        # ops of several slots would run on the same cores
        outcome = workload.fifo(enforced, 1)
        return Option(str(strategy), Uniform(base.intra, 1), outcome, strategy, choices)
    intra = workload.own.intra if strategy.bitwise else base.intra
    near = candidates(workload, choices)
    return _best(
        Option(
            str(strategy),
            Uniform(intra, inter),
            workload.corun(choices, near, inter, hyperthreads=strategy.smt),
            strategy,
            choices,
            near,
        )
        for inter in slots
    )


def _fewest(options: Iterable[Option]) -> Option:
    """Return the option with the fewest threads among those as fast as the fastest, except for
    `TIE`: each further thread must be woken, too."""
    every = list(options)
    bound = _best(every).seconds * (1 + TIE)
    near = [option for option in every if option.seconds <= bound]
    return min(near, key=lambda o: (o.uniform.intra * o.uniform.inter, o.seconds))


def _best(options: Iterable[Option]) -> Option:
    return min(options, key=lambda option: (option.seconds, option.uniform.inter))


def _op_plans(workload: Workload, chosen: Option) -> list[OpPlan]:
    """Return an entry for every op that is controlled separately, the most time-consuming first."""
    entries = [
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
    return [plan for _, _, plan in sorted(entries, key=lambda entry: entry[:2])]


# Explanation of the decision for single ops

# the most ops, and the most neighbours of an op, in an explanation
OPS = 8
NEIGHBOURS = 6


def explain(workload: Workload, selection: Selection, wanted: str) -> list[str]:
    """Return lines about the ops with the key or type `wanted`, or a key that contains it.

    The most time-consuming ops come first. Raises UsageError if no op matches.
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
        lines += (f"  {text}" for text in _outcome(workload, selection.chosen, index))
    if len(matching) > OPS:
        lines.append(f"{len(matching) - OPS} more ops match {wanted!r}")
    return lines


def _matching(ops: tuple[Op, ...], wanted: str) -> list[int]:
    for test in (
        lambda op: op.key == wanted,
        lambda op: op.type == wanted,
        lambda op: wanted.lower() in op.key.lower(),
    ):
        if matching := [index for index, op in enumerate(ops) if test(op)]:
            return matching
    types = collections.Counter(op.type for op in ops)
    raise UsageError(
        f"--explain {wanted}: no op has this key or type, or a key that contains it",
        remedy="use an op type of this profile, such as "
        + ", ".join(kind for kind, _ in types.most_common(12)),
    )


def _bar(workload: Workload, op: Op, best: Candidate) -> str:
    """Return the model's prediction for this case, and the likely error; empty without a model."""
    if workload.model is None:
        return ""
    try:
        seconds, error = workload.model.predict(op.key, best.threads, best.placement)
    except KeyError:
        return ""
    return f": {_time(seconds)} when it runs alone, +/- {_time(error)}"


def _outcome(workload: Workload, chosen: Option, index: int) -> Iterator[str]:
    """Yield the plan for an op, and its neighbours in the simulation."""
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
    neighbours = _neighbours(workload, chosen.outcome, index)
    if neighbours:
        yield "predicted to run at the same time: " + ", ".join(
            f"{kind} ({part:.0%} of its time)" for kind, part in neighbours[:NEIGHBOURS]
        )
    else:
        yield "predicted to run alone: no other op is ready or fits on the idle cores"


def _neighbours(workload: Workload, outcome: Outcome, index: int) -> list[tuple[str, float]]:
    """Return the op types that run while op `index` runs, each with its share of that op's time,
    the largest share first."""
    shared: dict[str, float] = collections.defaultdict(float)
    total = 0.0
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
    return sorted(((kind, t / total) for kind, t in shared.items()), key=lambda share: -share[1])


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
