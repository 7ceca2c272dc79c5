"""Measurement of a gate: rounds until every limit is decided, and the location of a slowdown.

`measure` takes rounds until every limit is decided, or the budget is spent. After a limit on time
has failed, `locate` takes a few more rounds that look inside the command.
"""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dltune.base.errors import UsageError
from dltune.gate import commands, launches
from dltune.gate.checkouts import Side
from dltune.gate.fairness import Disturbance, alike
from dltune.gate.limits import BENCHMARK, FROM_DOCUMENT, TIMED, Config, Limit, metric
from dltune.gate.verdicts import Sample, decided, judge, limits_for, next_look
from dltune.job.record import NANOSECOND
from dltune.profile import breakdown
from dltune.schemas.gate import Kind, Slower, Verdict
from dltune.schemas.machine import Machine
from dltune.stats import t_quantile
from dltune.system.checks.software import can_use_py_spy
from dltune.system.proc.process import Frame, own_frame
from dltune.watch import stack_samples
from dltune.watch.stack_samples import Stack, activity

# Rounds that decide the limits

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
        side.name: commands.look(side, machine, steps=steps, timeout=config.timeout, tell=tell)
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
            known = metric(limit.metric)
            if known and known.kinds and needs not in known.kinds:
                raise UsageError(
                    f"{config.source}: {limit.metric} cannot be measured for a command timed "
                    f"{TIMED[needs]}",
                    remedy="change `timed`, or remove the metric",
                )
        return needs == "steps"
    kinds = [set(m.kinds) for limit in config.limits if (m := metric(limit.metric))
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
        known = metric(limit.metric)
        assert known is not None
        sample = samples[limit.metric] = Sample(limit.metric, known.unit)
        if limit.metric in FROM_DOCUMENT:
            sample.exact = True
            sample.missing = commands.why_missing(limit)
            if sample.missing is None:
                for side in sides:
                    sample.of(side.name).append(commands.value_in_document(limit, side.folder))
        elif limit.metric.startswith(BENCHMARK):
            sample.missing = "it needs a pyperf file"
        elif limit.metric == "instructions" and (why := commands.why_no_counter()):
            sample.exact = True
            if shutil.which("valgrind") is None:
                sample.missing = f"{why}, and valgrind is not installed"
                continue
            tell("counting instructions with callgrind, about 50 times slower than a plain run")
            for side in sides:
                counted = commands.callgrind(side, timeout=config.timeout)
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
            done = launches.launch(
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
    counter = commands.InstructionCounter() if sample and not sample.exact else None

    def once() -> dict[str, dict[str, float]]:
        while True:
            spoilt = watch()
            runs = {
                side.name: commands.run(side, timeout=config.timeout, counter=counter)
                for side in made.drawn()
            }
            if not spoilt():
                break
        values: dict[str, dict[str, float]] = {}
        for name, run in runs.items():
            made.steps.setdefault(name, []).append([(run["time"],)])
            for key, value in run.items():
                values.setdefault(key, {})[name] = value
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


# Location of a slowdown

# rounds: fewer do not show their spread; more are begun only within this share of the budget
LOCATING_ROUNDS, LEAST_LOCATING_ROUNDS, SHARE = 4, 2, 0.3
# turns of a round, and how long each is, in seconds
TURNS, TURN_SECONDS = 4, 0.25
# the intervals of all reported differences of one kind hold together
CONFIDENCE = 0.95
# report only differences of at least this share of all that was gained, at most MOST of each kind
LEAST, MOST = 0.05, 5
# samples of the main thread below which a round does not count for Python
LEAST_LOOKS = 20
# functions of the interpreter in which other threads than the main one begin
_THREADS = ("_bootstrap", "Thread._bootstrap")

SlowerKind = Literal["part", "op", "python"]
KINDS: tuple[SlowerKind, ...] = ("part", "op", "python")
# seconds of a step, or of the whole command, by name; a kind that was not observed is missing
Amounts = Mapping[SlowerKind, Mapping[str, float]]
# in which file and at which line the head's functions were seen, and how often
Lines = dict[str, Counter[tuple[str, int]]]


def asked(verdicts: Iterable[Verdict]) -> bool:
    """Return True if a ratio of times has failed."""
    return any(
        verdict.outcome == "fail" and verdict.over == "ratio" and verdict.unit == "s"
        and verdict.metric not in (*FROM_DOCUMENT, "startup")
        for verdict in verdicts
    )  # fmt: skip


def locate(
    tops: Mapping[str, Path],
    changed: Collection[str],
    made: Measurement,
    machine: Machine,
    config: Config,
    *,
    tell: Callable[[str], None],
) -> tuple[tuple[Slower, ...], list[str]]:
    """Return the slower parts, the most costly of each kind first, and notes on missing evidence.

    The parts of a training job are the parts of its steps, the ops by key, and the Python functions
    that ran between steps. The parts of a Python command timed whole are its functions. Both sides
    take turns as before. A difference is reported if its confidence interval is above 0.

    `tops`: each side's checkout; `changed`: files that the change touches, as git names them there.
    An interrupt returns the results so far, because the verdict is final already.
    """
    seen: dict[str, list[Amounts]] = {"base": [], "head": []}
    lines: Lines = defaultdict(Counter)
    notes: dict[str, None] = {}
    began = time.monotonic()
    try:
        for number in range(LOCATING_ROUNDS):
            pace = (time.monotonic() - began) / number if number else 0.0
            if number >= LEAST_LOCATING_ROUNDS and pace * (number + 1) > SHARE * config.budget:
                break
            tell(f"locating the slowdown: round {number + 1} of {LOCATING_ROUNDS}")
            amounts = dict(_round(tops, made, machine, config, lines, notes))
            for name, known in seen.items():
                known.append(amounts.get(name, {}))
    except UsageError as error:
        notes[f"cannot locate the slowdown: {error}"] = None
    except KeyboardInterrupt:
        notes["locating the slowdown was interrupted"] = None
    found = tuple(
        Slower(kind, _titled(kind, what, lines), *figures, _touched(kind, what, changed))
        for kind, what, figures in slower(seen["base"], seen["head"])
    )
    if not found and not notes:
        if not any(map(any, seen.values())):
            notes["cannot locate the slowdown: no part of the work was observed"] = None
        else:
            notes["cannot locate the slowdown: no part is slower beyond noise"] = None
    return found, list(notes)


def slower(
    base: Sequence[Amounts], head: Sequence[Amounts]
) -> Iterator[tuple[SlowerKind, str, tuple[float, float, float, float]]]:
    """Yield kind, name, and (base, head, low, high) of each item that takes longer in the head
    beyond chance: means over rounds, and Student's interval of the difference. The intervals hold
    for all items in question together (Bonferroni; not corrected for the choice by measurement)."""
    gained = 0.0
    for kind in KINDS:
        rounds = zip(base, head, strict=True)
        both = [(b[kind], h[kind]) for b, h in rounds if kind in b and kind in h]
        if len(both) < LEAST_LOCATING_ROUNDS:
            continue
        every = dict.fromkeys(what for pair in both for side in pair for what in side)
        pairs = {what: [(b.get(what, 0.0), h.get(what, 0.0)) for b, h in both] for what in every}
        means = {what: statistics.fmean(h - b for b, h in those) for what, those in pairs.items()}
        # parts add up to the step; where there are none, functions do to the command
        gained = gained or sum(means.values())
        asked = [what for what in every if means[what] > 0 and means[what] >= LEAST * gained]
        level = 1 - (1 - CONFIDENCE) / 2 / max(1, len(asked))
        reach = t_quantile(level, len(both) - 1) / math.sqrt(len(both))
        for what in sorted(asked, key=lambda what: -means[what])[:MOST]:
            around = reach * statistics.stdev(h - b for b, h in pairs[what])
            if means[what] > around:
                before, after = map(statistics.fmean, zip(*pairs[what], strict=True))
                yield kind, what, (before, after, means[what] - around, means[what] + around)


def _round(
    tops: Mapping[str, Path],
    made: Measurement,
    machine: Machine,
    config: Config,
    lines: Lines,
    notes: dict[str, None],
) -> Iterator[tuple[str, Amounts]]:
    """Yield each side's name and amounts."""
    sides = made.drawn()
    if made.kind == "whole":
        for side in sides:
            steps = [step for run in made.steps[side.name] for turn in run for step in turn]
            stacks = _looked_at(side, config.timeout)
            seconds = statistics.median(steps)
            yield side.name, {"python": _python(stacks, tops[side.name], side, lines, seconds)}
        return
    done = launches.launch(
        sides,
        made.signatures,
        machine,
        rounds=TURNS,
        seconds=TURN_SECONDS,
        patience=config.timeout,
        wanted=(),
        tell=lambda _: None,
        looking=True,
    )
    for side in sides:
        seen = done.seen.get(side.name)
        if seen is None:
            continue
        if seen.why_no_stacks:
            notes[f"the slow Python function is unknown: {seen.why_no_stacks}"] = None
        amounts = _within(seen)
        main = [stack for stack in seen.stacks if stack.thread == seen.pid]
        if sum(stack.looks for stack in main) >= LEAST_LOOKS:
            between = [s for s in main if activity(s.frames) not in ("step", "input")]
            seconds = amounts["part"].get("python", 0.0)
            amounts["python"] = _python(between, tops[side.name], side, lines, seconds)
        yield side.name, amounts


def _within(seen: launches.Seen) -> dict[SlowerKind, dict[str, float]]:
    """Return the seconds of the parts and the ops of a step. Graphs other than the main graph
    count as often as they run for each execution of the main graph."""
    found: dict[SlowerKind, dict[str, float]] = {
        kind: defaultdict(float) for kind in ("part", "op")
    }
    parts = breakdown.parts(seen.graphs, seen.executions)
    main = len(next(iter(seen.executions.values()), ()))
    for graph, executions in seen.executions.items():
        runs = len(executions) / main
        for part in parts[graph]:
            found["part"][part.name] += runs * part.seconds
        by_key: dict[str, list[float]] = defaultdict(list)
        for execution in executions:
            once: Counter[str] = Counter()
            for _, key, threads, _, start, end, _ in execution.events:
                if threads >= 0:
                    once[seen.keys[key].key] += end - start
            for text, nanoseconds in once.items():
                by_key[text].append(nanoseconds * NANOSECOND)
        for text, seconds in by_key.items():
            found["op"][text] += runs * statistics.median(seconds)
    return found


def _python(
    stacks: Sequence[Stack], top: Path, side: Side, lines: Lines, seconds: float
) -> dict[str, float]:
    """Divide `seconds` among the job's own functions by their samples. The head's places are
    counted in `lines`."""
    total = sum(stack.looks for stack in stacks)
    found: dict[str, float] = defaultdict(float)
    for stack in stacks:
        if (frame := own_frame(stack.frames)) is None:
            continue
        file = _file(frame, top)
        what = f"{file} ({frame.name})"
        found[what] += seconds * stack.looks / total
        if side.name == "head":
            lines[what][file, frame.line] += stack.looks
    return found


def _looked_at(side: Side, timeout: float) -> list[Stack]:
    """Return the stacks of a command's main thread. Raises UsageError if py-spy cannot sample."""
    command, why = can_use_py_spy()
    if command is None:
        raise UsageError(why, remedy=None)
    with tempfile.TemporaryDirectory(prefix="dltune-", dir=side.temporary) as folder:
        file = Path(folder) / "stacks"
        under = side.under(stack_samples.recording(command, file, launches.LOOKS_A_SECOND))
        try:
            commands.run(under, timeout=timeout)
            stacks = list(stack_samples.parse_stacks(file.read_text(errors="replace").splitlines()))
        except (UsageError, OSError) as error:
            message = f"py-spy could not sample the command, which must run Python ({error})"
            raise UsageError(message, remedy=None) from None
        return [s for s in stacks if s.frames and s.frames[-1].name not in _THREADS]


def _file(frame: Frame, top: Path) -> str:
    """Return a file of the checkout as git names it."""
    path = Path(frame.filename)
    return str(path.relative_to(top)) if path.is_relative_to(top) else frame.filename


def _titled(kind: SlowerKind, what: str, lines: Lines) -> str:
    """Return the title of an item, with the line at which the head was sampled most often."""
    if kind != "python" or not lines.get(what):
        return what
    ((file, line), _) = lines[what].most_common(1)[0]
    return f"{file}:{line}{what.removeprefix(file)}"


def _touched(kind: SlowerKind, what: str, changed: Collection[str]) -> bool:
    return kind == "python" and what.rpartition(" (")[0] in changed
