"""Rounds until every limit is decided, or the budget is spent."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dltune.base.errors import UsageError
from dltune.gate import documents, instructions, metrics, probe, training, whole
from dltune.gate.alike import alike
from dltune.gate.config import Config, Limit
from dltune.gate.disturbance import Disturbance
from dltune.gate.side import Side
from dltune.gate.verdict import Sample, decided, judge, limits_for, next_look
from dltune.schemas.gate import Kind, Verdict
from dltune.schemas.machine import Machine

# no verdict is found with fewer rounds, so no budget ends before them
LEAST_ROUNDS = 2


@dataclass
class Measurement:
    """Measurements of a gate: `steps` are the raw times of steps in seconds, side -> launches ->
    turns; a run of a whole command is one step. `signatures`: of each side's step graphs.
    `drawn` gives the sides as the next round has them, in an order drawn by lot: so that whatever
    disturbs one place disturbs both alike."""

    kind: Kind
    limits: tuple[Limit, ...]
    samples: dict[str, Sample]
    verdicts: list[Verdict] = field(default_factory=list)
    steps: dict[str, list[list[tuple[float, ...]]]] = field(default_factory=dict)
    signatures: dict[str, tuple[str, ...]] = field(default_factory=dict)
    drawn: Callable[[], list[Side]] = list
    rounds: int = 0
    notes: list[str] = field(default_factory=list)

    def judge(self, confidence: float) -> None:
        """Judge the limits from the samples so far."""
        self.verdicts = [
            verdict
            for limit in self.limits
            for verdict in judge(limit, self.samples[limit.metric], confidence)
        ]


def measure(
    sides: Sequence[Side],
    machine: Machine,
    config: Config,
    *,
    tell: Callable[[str], None],
    before: Mapping[str, Sequence[float]] | None = None,
    exact: Collection[str] = (),
    rounds: int | None = None,
) -> Measurement:
    """Measure the sides in turns and judge after each round.

    Two sides are "base" and "head". With one, its values are the head's, and `before` has the
    base's (metric -> values, of those in `exact` one that does not vary); without that nothing is
    judged, and exactly `rounds` are taken. Raises UsageError, which names the side, when its
    command fails, and for a metric that can be measured here in another way only than `before`.
    """
    steps = _steps(config)
    signatures = {
        side.name: probe.look(side, machine, steps=steps, timeout=config.timeout, tell=tell)
        for side in sides
    }
    kinds: dict[str, Kind] = {n: "steps" if s else "whole" for n, s in signatures.items()}
    if len(set(kinds.values())) > 1:
        trains = next(s.title for s in sides if kinds[s.name] == "steps")
        other = next(s.title for s in sides if kinds[s.name] == "whole")
        raise UsageError(
            f"the command trains in {trains}, but ends before a step repeats in {other}",
            remedy="let the job train for more steps in both, or set timed = 'whole'",
        )
    kind = kinds[sides[-1].name]
    limits = limits_for(config, kind)
    variables, notes = alike(config, kind, limits, machine, sides)

    def drawn() -> list[Side]:
        shared = variables()
        return [side.having(shared) for side in random.sample(sides, len(sides))]

    made = Measurement(
        kind,
        limits,
        _samples(limits, drawn(), tell, config),
        signatures=signatures,
        notes=notes,
        drawn=drawn,
    )
    for name, values in (before or {}).items():
        if (sample := made.samples.get(name)) and sample.missing is None:
            if sample.exact != (name in exact):
                ways = {True: "counted once", False: "measured in every round"}
                raise UsageError(
                    f"{name} was {ways[name in exact]} in the baseline, but here it is "
                    f"{ways[sample.exact]}",
                    remedy="record the baseline again",
                )
            sample.base, sample.paired = list(values), sample.exact
    disturbance = Disturbance()
    with _sampler(machine, config, made, disturbance, tell) as sample_round:
        began, longest, look = time.monotonic(), 0.0, 1
        while rounds is None or made.rounds < rounds:
            started = time.monotonic()
            _add(made, sample_round(), sides)
            made.rounds += 1
            now = time.monotonic()
            longest = max(longest, now - started)
            spent = now - began + longest > config.budget and made.rounds >= LEAST_ROUNDS
            if rounds is not None or (made.rounds < look and not spent):
                continue
            look = next_look(made.rounds)
            made.judge(config.confidence)
            if decided(made.verdicts):
                break
            if spent:
                made.notes.append(_spent(config, made.verdicts, (now - began) / made.rounds))
                break
            tell(f"round {made.rounds + 1}: {_state(made.verdicts)}")
    made.notes += disturbance.notes
    return made


def _steps(config: Config) -> bool | None:
    """True if the command must have steps: as configured, else as the metrics need it."""
    if config.timed != "auto":
        needs: Kind = config.timed
        for limit in config.limits:
            known = metrics.metric(limit.metric)
            if known and known.kinds and needs not in known.kinds:
                raise UsageError(
                    f"{config.source}: {limit.metric} cannot be measured for a command timed "
                    f"{metrics.TIMED[needs]}",
                    remedy="change `timed`, or remove the metric",
                )
        return needs == "steps"
    kinds = [set(m.kinds) for limit in config.limits if (m := metrics.metric(limit.metric))
             and m.kinds]  # fmt: skip
    common = set.intersection(*kinds) if kinds else {"steps", "whole"}
    if not common:
        raise UsageError(
            f"{config.source}: some metrics need a job's steps, others a whole command; one gate "
            "cannot measure both",
            remedy="put them in two files and run one gate for each",
        )
    return None if len(common) == 2 else common == {"steps"}


def _samples(
    limits: Sequence[Limit], sides: Sequence[Side], tell: Callable[[str], None], config: Config
) -> dict[str, Sample]:
    samples = {}
    for limit in limits:
        known = metrics.metric(limit.metric)
        assert known is not None
        sample = samples[limit.metric] = Sample(limit.metric, known.unit)
        if limit.metric in metrics.FROM_DOCUMENT:
            sample.exact = True
            sample.missing = documents.why_missing(limit)
            if sample.missing is None:
                for side in sides:
                    sample.of(side.name).append(documents.value(limit, side.folder))
        elif limit.metric.startswith(metrics.BENCHMARK):
            sample.missing = "it needs a pyperf file"
        elif limit.metric == "instructions" and (why := instructions.why_no_counter()):
            sample.exact = True
            if shutil.which("valgrind") is None:
                sample.missing = f"{why}, and valgrind is not installed"
                continue
            tell("counting instructions with callgrind, about 50 times slower than a plain run")
            for side in sides:
                counted = instructions.callgrind(side, timeout=config.timeout)
                sample.of(side.name).append(counted)
    return samples


@contextlib.contextmanager
def _sampler(
    machine: Machine,
    config: Config,
    made: Measurement,
    disturbance: Disturbance,
    tell: Callable[[str], None],
) -> Iterator[Callable[[], dict[str, dict[str, float]]]]:
    """Yield a function that takes a round: metric -> side -> value."""
    watch = disturbance.turn if config.disturbed == "repeat" else lambda: lambda: False
    if made.kind == "steps":

        def launch() -> dict[str, dict[str, float]]:
            done = training.launch(
                made.drawn(),
                made.signatures,
                machine,
                rounds=config.rounds_per_launch,
                seconds=config.seconds_per_turn,
                patience=config.timeout,
                wanted=made.samples,
                watch=watch,
                tell=tell,
            )
            for name, rounds in done.steps.items():
                made.steps.setdefault(name, []).append(rounds)
            return done.values

        yield launch
        return
    sample = made.samples.get("instructions")
    counter = instructions.Counter() if sample and not sample.exact else None

    def once() -> dict[str, dict[str, float]]:
        while True:
            spoilt = watch()
            runs = {
                side.name: whole.run(side, timeout=config.timeout, counter=counter)
                for side in made.drawn()
            }
            if not spoilt():
                break
        values: dict[str, dict[str, float]] = {}
        for name, run in runs.items():
            made.steps.setdefault(name, []).append([(run["time"],)])
            for metric, value in run.items():
                values.setdefault(metric, {})[name] = value
        return values

    try:
        yield once
    finally:
        if counter:
            counter.close()


def _add(
    made: Measurement, values: Mapping[str, Mapping[str, float]], sides: Sequence[Side]
) -> None:
    for name, sample in made.samples.items():
        found = values.get(name, {})
        if sample.exact or sample.missing or len(found) < len(sides):
            continue
        for side, value in found.items():
            sample.of(side).append(value)


def _spent(config: Config, verdicts: Sequence[Verdict], pace: float) -> str:
    """That the budget is spent, and which would have done. `pace`: seconds of a round."""
    told = f"the budget of {config.budget:g} s was spent"
    open_ = [verdict.needed for verdict in verdicts if verdict.outcome == "undecided"]
    if needed := max((rounds for rounds in open_ if rounds is not None), default=0):
        minutes = math.ceil(needed * pace / 60)
        told += f"; about {minutes} min would decide every limit that can be decided"
    return told


def _state(verdicts: Sequence[Verdict]) -> str:
    open_ = [v for v in verdicts if v.outcome == "undecided" and v.rounds]
    return ", ".join(
        f"{v.metric} {v.median:.3g}" if v.median is not None else v.metric for v in open_[:3]
    )
