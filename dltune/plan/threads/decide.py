"""Simulate every setting and strategy, and take the one that is predicted to be fastest."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.frameworks.tensorflow import runtime
from dltune.plan.threads.strategies import (
    candidates,
    per_instance,
    per_type,
    why_no_hyperthreads,
)
from dltune.schemas.plan import Candidate, OpPlan, Prediction, Threads, Uniform
from dltune.simulate.workload import SMALL, Outcome, Workload

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
