"""All parts of the plan's section on allreduce, each on top of those before it.

Parts are the cores, the bins, the methods that replace spinning in MPI, and Horovod's settings.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.simulate.overlap import Cost, Partition
from dltune.systems.ranks.allreduce.measurements import YIELDING, Call
from dltune.systems.ranks.allreduce.model import Model, Setting, core_partition
from dltune.systems.ranks.allreduce.order import Bins, ordered
from dltune.systems.ranks.allreduce.section import AllreducePlan, Knobs, MethodPrediction, Sleeps
from dltune.systems.ranks.simulation.job import ORIGINAL, Method
from dltune.systems.ranks.simulation.simulate import Outcome

NAMES = ("non-blocking", "global-sleep", "yield", "rest")
WAYS = (
    ("non-blocking",),
    ("global-sleep",),
    ("non-blocking", "global-sleep"),
    ("yield",),
    ("rest",),
    ("non-blocking", "rest"),
    ("yield", "rest"),
)
# Seconds between two tests; among equals the one that is met first. A try-out on two ranks found
# 30 us better than 100 and 400.
SLEEPS = (30e-6, 10e-6, 100e-6, 400e-6)
AGREE = (1, 5, 20)  # cycles; the thesis found every cycle best
# Seconds, the most that a thread with nothing to send rests: events not known to wake it (a
# shutdown, a tensor negotiated by name) come so much later at most. Our choice.
REST = 50e-3
WORTH = 0.005

GLOO = (
    "non-blocking, global-sleep, yield and rest are for Horovod over MPI, whose background threads "
    "spin while they wait; with gloo they already block in poll()"
)


@dataclass(frozen=True)
class Way:
    """`names`: of NAMES. Under `setting` and `method` the step has this `outcome`."""

    names: tuple[str, ...]
    sleeps: Sleeps | None
    setting: Setting
    method: Method
    outcome: Outcome


Predict = Callable[[Setting, Method], Outcome]


def ways(wanted: Collection[str], setting: Setting, method: Method, predict: Predict) -> list[Way]:
    """The best form of each way to wait that only needs the `wanted` ones, on top of a setting.

    A way replaces a background thread's spinning in MPI. `non-blocking` is NBCS and `global-sleep`
    is GS of the thesis (sections 6.3.2 and 6.3.1). `yield` is Open MPI's `mpi_yield_when_idle`.
    `rest` (cycles on demand) also combines with one of the others.
    """
    found: list[Way] = []
    for names in WAYS:
        if not set(names) <= set(wanted):
            continue
        own = dataclasses.replace(setting, waiting=YIELDING) if "yield" in names else setting
        tests = SLEEPS if "non-blocking" in names else (None,)
        cycles = AGREE if "global-sleep" in names else (None,)
        rest = REST if "rest" in names else None
        best: Way | None = None
        for between in tests:
            for every in cycles:
                slept = dataclasses.replace(
                    method, between_tests=between, agree_every=every, rest=rest
                )
                sleeps = None if names == ("yield",) else Sleeps(between, every, rest)
                way = Way(names, sleeps, own, slept, predict(own, slept))
                if best is None or way.outcome.seconds < best.outcome.seconds * (1 - WORTH):
                    best = way
        assert best is not None
        found.append(best)
    return found


CYCLES = (0.5e-3, 1e-3, 2e-3, 3.5e-3, 5e-3, 10e-3)
MIB = 1 << 20
THRESHOLDS = (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 128 * MIB)
# a change must make the step shorter by this part


def tuned(
    setting: Setting, tensors: int, largest: int | None, predict: Callable[[Setting], float]
) -> tuple[Knobs, tuple[str, ...]]:
    """Return the knobs under which a step is predicted shortest, and why.

    `largest`: bytes of the largest bin, when there are bins; the threshold then only has to hold
    it. The cache holds all `tensors`, with as many again for the job's other reductions. A single
    tensor too many empties it: the cache drops the least recently used, and the job uses all in
    turns.

    Cycle time, fusion threshold and cache capacity follow from the simulation. Horovod's own
    autotuner tries settings on the running job, one after the other and without a model of it; here
    the same are tried on the simulated one.
    """
    own = setting.knobs
    capacity = own.cache_capacity
    while capacity < 2 * tensors:
        capacity = max(1024, 2 * capacity)
    thresholds = [own.fusion_threshold, *THRESHOLDS]
    if largest is not None:
        thresholds = [max(own.fusion_threshold, -(-largest // MIB) * MIB)]
    first = Knobs(own.cycle_time, thresholds[0], capacity)
    ways = [first] + [
        Knobs(cycle, threshold, capacity) for threshold in thresholds for cycle in CYCLES
    ]
    seconds = {
        knobs: predict(dataclasses.replace(setting, knobs=knobs)) for knobs in dict.fromkeys(ways)
    }
    best = min(seconds, key=seconds.__getitem__)
    if seconds[first] <= seconds[best] * (1 + WORTH):
        best = first
    told = ", ".join(
        f"{cycle * 1e3:g} ms: {s * 1e3:.1f}"
        for cycle, s in sorted(
            (k.cycle_time, s)
            for k, s in seconds.items()
            if k.fusion_threshold == best.fusion_threshold
        )
    )
    return best, (
        f"knobs: cycle time {best.cycle_time * 1e3:g} ms, fusion threshold "
        f"{best.fusion_threshold / MIB:g} MiB, cache of {best.cache_capacity} tensors (the "
        f"job reduces {tensors}); predicted step in ms by cycle time: {told}",
    )


METHODS = ("core-partition", "ordered-bins", *NAMES, "knobs")
# orders of bins, and the method's name under each: the graph's order, or the order of TicTac's TAC
ORDERS = {"graph": "ordered-bins", "tac": "tac-bins"}
# A method is taken when it makes the predicted step shorter by this part, or leaves it as it is
# and takes that part of the background thread's CPU time away.
SHORTER, LIGHTER = 0.005, 0.1
_TWO_THREADS = (
    "2 inter-op threads in a rank: with 1, TensorFlow submits all bins at the end of the "
    "backward pass, the last bin first"
)


# the section's parts that methods decide, as long as none has
_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("cores", "threads", "orders", "sleeps", "knobs")),
    "yield_when_idle": False,
}


@dataclass(frozen=True)
class State:
    """The plan so far: `names` of the methods, `parts` of the section.

    `cores`: how many a rank computes on (None: all of the node's, with the other ranks).
    """

    names: tuple[str, ...]
    setting: Setting
    method: Method
    cores: int | None
    outcome: Outcome
    parts: Mapping[str, Any]
    reasons: tuple[str, ...]

    @property
    def name(self) -> str:
        named = ("core-partition", *ORDERS.values(), *NAMES, "knobs")
        return "+".join(name for name in named if name in self.names)


@dataclass(frozen=True)
class Search:
    """Plans with one model. `threads`: those of the main plan, if it has any. `order`: of ORDERS,
    the order of the bins."""

    model: Model
    machine: Machine
    threads: Uniform | None
    order: str = "graph"

    def plan(
        self, wanted: Collection[str], *, forced: bool, report: str
    ) -> tuple[AllreducePlan, str]:
        """The section, and which of its predictions it is.

        `wanted`: of METHODS. `forced`: all of these, else those that are predicted to help.
        `report`: the digest of what this rests on.
        """
        seen = self.model.observed
        first = self.model.outcome(self.model.original, ORIGINAL)
        start = State((), self.model.original, ORIGINAL, None, first, _NOTHING, ())
        apart, binned, tuned = (
            [stage(start)] if name in wanted else []
            for name, stage in (
                ("core-partition", self._scp),
                ("ordered-bins", self._binned),
                ("knobs", self._knobs),
            )
        )
        waits = self._waiting(start, wanted)
        alone = [*apart, *binned, *waits, *tuned]
        # how a thread waits and where it runs go together: what spins needs a core, what sleeps not
        partitioned = [self._scp(way) for way in waits if "core-partition" in wanted]
        states = [start, *waits, *apart, *partitioned]
        if forced:
            needed = set(wanted) & {"core-partition", *NAMES}
            states = [state for state in states if set(state.names) == needed]
        outcomes = {"original": first}
        outcomes |= {state.name: state.outcome for state in (*alone, *states)}
        state = _best(states)
        if self.order != "graph" and "ordered-bins" in wanted:  # to compare with
            other = dataclasses.replace(self, order="graph")._binned(state)
            outcomes[other.name] = other.outcome
        for name, stage in (("ordered-bins", self._binned), ("knobs", self._knobs)):
            if name in wanted:
                following = stage(state)
                outcomes[following.name] = following.outcome
                helps = forced or _helps(state.outcome, following.outcome)
                left = following.names[-1]
                state = following if helps else _without(state, left, state, following)
        for one in alone:
            partitions = "core-partition" in one.names
            kind = {"core-partition"} if partitions else set(NAMES)
            if not {*ORDERS.values(), "knobs"} & set(one.names) and not kind & set(state.names):
                state = _without(state, one.name, start, one)
        section = AllreducePlan(
            report=report,
            controller=seen.controller,
            ranks=seen.ranks,
            local=seen.local,
            predictions=tuple(
                MethodPrediction(name, outcome.seconds, outcome.background)
                for name, outcome in outcomes.items()
                if name
            ),
            reasons=(*seen.assumed, *state.reasons),
            **state.parts,
        )
        return section, state.name or "original"

    def _scp(self, state: State) -> State:
        found = core_partition(self.model, self.machine, self.threads, state.setting, state.method)
        return self._next(
            state,
            ("core-partition",),
            setting=found.setting,
            method=found.method,
            cores=found.split.compute,
            parts={"cores": found.cores, "threads": found.setting.threads},
            reasons=found.reasons,
        )

    def _binned(self, state: State) -> State:
        seen, knobs = self.model.observed, state.setting.knobs
        job = self.model.job(state.setting, state.cores)
        ends = itertools.accumulate(phase.seconds for phase in job.phases)
        moments = [0.0] * len(job.tensors)
        for phase, end in zip(job.phases, ends, strict=True):
            for tensor in phase.tensors:
                moments[tensor] = end
        # a bin waits for half a cycle on average, is agreed on, and travels
        cost = Cost(
            knobs.cycle_time / 2 + job.synchronization + seen.network.start(seen.ranks),
            seen.network.per_byte(seen.ranks),
        )

        def under(bins: Bins) -> tuple[Setting, Method]:
            pieces, travelling = _numbered(bins, len(job.tensors))
            return (
                dataclasses.replace(state.setting, pieces=pieces),
                dataclasses.replace(state.method, bins=travelling, synchronized=True),
            )

        def behind(call: Call) -> Partition:
            return self.model.waiting(call, state.setting, state.cores)

        found = ordered(
            self.model,
            moments,
            cost,
            knobs.fusion_threshold,
            lambda bins: self.model.outcome(*under(bins), state.cores).seconds,
            behind if self.order == "tac" else None,
        )
        parts: dict[str, Any] = {"orders": found.orders}
        reasons = found.reasons
        threads = state.setting.threads
        if threads.inter == 1 and any(len(order.bins) > 1 for order in found.orders):
            parts["threads"] = Uniform(threads.intra, 2)
            reasons = (*reasons, f"{ORDERS[self.order]}: {_TWO_THREADS}")
        setting, method = under(found.bins)
        changes = {"setting": setting, "method": method}
        return self._next(state, (ORDERS[self.order],), parts=parts, reasons=reasons, **changes)

    def _waiting(self, state: State, wanted: Collection[str]) -> list[State]:
        found = ways(
            wanted,
            state.setting,
            state.method,
            lambda setting, method: self.model.outcome(setting, method, state.cores),
        )
        return [
            self._next(
                state,
                way.names,
                setting=way.setting,
                method=way.method,
                parts={"yield_when_idle": "yield" in way.names, "sleeps": way.sleeps},
                reasons=(_waits(way, state),),
            )
            for way in found
        ]

    def _knobs(self, state: State) -> State:
        orders = state.parts["orders"]
        largest = max(bin_.bytes for order in orders for bin_ in order.bins) if orders else None
        knobs, reasons = tuned(
            state.setting,
            len(self.model.job(state.setting, state.cores).tensors),
            largest,
            lambda setting: self.model.outcome(setting, state.method, state.cores).seconds,
        )
        return self._next(
            state,
            ("knobs",),
            setting=dataclasses.replace(state.setting, knobs=knobs),
            parts={"knobs": knobs},
            reasons=reasons,
        )

    def _next(
        self,
        state: State,
        names: Sequence[str],
        *,
        parts: Mapping[str, Any],
        reasons: Sequence[str],
        **changes: Any,
    ) -> State:
        """One with these methods too; `changes`: of its setting, method and cores."""
        then = dataclasses.replace(state, **changes)
        return dataclasses.replace(
            then,
            names=(*state.names, *names),
            outcome=self.model.outcome(then.setting, then.method, then.cores),
            parts={**state.parts, **parts},
            reasons=(*state.reasons, *reasons),
        )


def applicable(
    methods: Collection[str] | None, controller: str, *, needs: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the methods that can be planned, and sentences on those that cannot.

    `methods`: the requested methods, None for all; `needs`: True if a report shows the needs of the
    ranks. Raises UsageError when a requested method cannot be planned.
    """
    cannot = dict.fromkeys(NAMES, GLOO) if controller == "gloo" else {}
    if not needs:
        cannot["core-partition"] = (
            "core-partition needs a report: it divides the cores by the CPU time of the ranks"
        )
    for name in methods or ():
        if name in cannot:
            raise UsageError(
                cannot[name],
                remedy=f"leave {name} out of --methods"
                if controller == "gloo" and name in NAMES
                else "make a report: dltune horovod-report -o report.json -- horovodrun ...",
            )
    asked = set(methods or ())
    if "yield" in asked and (sleeping := asked & {"non-blocking", "global-sleep"}):
        raise UsageError(
            f"--methods: yield cannot be combined with {' and '.join(sorted(sleeping))}: a thread "
            "that sleeps between two tests has no core to yield",
            remedy="leave one of them out of --methods",
        )
    if {"global-sleep", "rest"} <= asked:
        raise UsageError(
            "--methods: global-sleep cannot be combined with rest: the first gives all ranks the "
            "shortest sleep, the second lets each rank sleep until it has something to send",
            remedy="leave one of them out of --methods",
        )
    chosen = tuple(m for m in METHODS if m in (methods or METHODS) and m not in cannot)
    return chosen, () if methods else tuple(dict.fromkeys(cannot.values()))


def _numbered(
    bins: Bins, gradients: int
) -> tuple[dict[int, list[int]], tuple[tuple[int, ...], ...]]:
    """Return the arguments of the simulation, in which each piece is a separate tensor: the bytes
    of each gradient's pieces, and the tensors of each bin."""
    pieces: dict[int, list[int]] = {}
    for bin_ in bins:
        if bin_.elements:
            pieces.setdefault(bin_.tensors[0], []).append(bin_.bytes)
    counts = [len(pieces.get(gradient, (0,))) for gradient in range(gradients)]
    following = list(itertools.accumulate(counts[:-1], initial=0))
    travelling = []
    for bin_ in bins:
        travelling.append(tuple(following[gradient] for gradient in bin_.tensors))
        for gradient in bin_.tensors:
            following[gradient] += 1
    return pieces, tuple(travelling)


def _best(states: Sequence[State]) -> State:
    """Return the state with the fewest methods among those about as fast as the fastest."""
    least = min(state.outcome.seconds for state in states)
    good = [state for state in states if state.outcome.seconds <= least * (1 + SHORTER)]
    return min(good, key=lambda state: (len(state.names), state.outcome.seconds))


def _helps(before: Outcome, after: Outcome) -> bool:
    if after.seconds < before.seconds * (1 - SHORTER):
        return True
    lighter = after.background < before.background * (1 - LIGHTER)
    return lighter and after.seconds <= before.seconds * (1 + SHORTER)


def _without(state: State, name: str, before: State, after: State) -> State:
    """The state, and why it leaves out what leads from `before` to `after`."""
    why = (
        f"{name}: left out, no predicted gain: a step takes {after.outcome.seconds * 1e3:.1f} ms "
        f"with it, {before.outcome.seconds * 1e3:.1f} ms without"
    )
    return dataclasses.replace(state, reasons=(*state.reasons, why))


def _waits(way: Way, state: State) -> str:
    sleeps = way.sleeps or Sleeps(None, None)
    parts = []
    if sleeps.between_tests is not None:
        parts.append(f"sleeps {sleeps.between_tests * 1e6:.0f} us between two tests of MPI")
    if sleeps.agree_every is not None:
        every = "cycle" if sleeps.agree_every == 1 else f"{sleeps.agree_every} cycles"
        parts.append(f"agrees on the shortest sleep with all ranks every {every}")
    if "yield" in way.names:
        parts.append("yields its core at each test (Open MPI's mpi_yield_when_idle)")
    if sleeps.rest is not None:
        parts.append(f"sleeps up to {sleeps.rest * 1e3:g} ms while there is nothing to send")
    return (
        f"{'+'.join(way.names)}: the background thread {' and '.join(parts)}; predicted: "
        f"{way.outcome.background:.1%} of a core instead of {state.outcome.background:.1%}, a step "
        f"of {way.outcome.seconds * 1e3:.1f} ms instead of {state.outcome.seconds * 1e3:.1f} ms"
    )
