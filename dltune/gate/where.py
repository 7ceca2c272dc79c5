"""Locate a slowdown after a limit on time has failed, with a few more rounds that look inside.

For a training job: the parts of its steps, the ops by key, and the Python functions that ran
between steps. For a Python command timed whole: its functions. Both sides take turns as before.
A difference is reported if its confidence interval is above 0.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from dltune.base.errors import UsageError
from dltune.gate import metrics, training, whole
from dltune.gate.config import Config
from dltune.gate.measure import Measurement
from dltune.gate.side import Side
from dltune.job.record import NANOSECOND
from dltune.profile import breakdown
from dltune.schemas.gate import Slower, Verdict
from dltune.schemas.machine import Machine
from dltune.stats import t_quantile
from dltune.system.checks.software import can_use_py_spy
from dltune.system.proc.process import Frame, own_frame
from dltune.watch import stack_samples
from dltune.watch.stack_samples import Stack, activity

# rounds: fewer do not show their spread; more are begun only within this share of the budget
ROUNDS, LEAST_ROUNDS, SHARE = 4, 2, 0.3
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

Kind = Literal["part", "op", "python"]
KINDS: tuple[Kind, ...] = ("part", "op", "python")
# seconds of a step, or of the whole command, by name; a kind that was not observed is missing
Amounts = Mapping[Kind, Mapping[str, float]]
# in which file and at which line the head's functions were seen, and how often
Lines = dict[str, Counter[tuple[str, int]]]


def asked(verdicts: Iterable[Verdict]) -> bool:
    """Return True if a ratio of times has failed."""
    return any(
        verdict.outcome == "fail" and verdict.over == "ratio" and verdict.unit == "s"
        and verdict.metric not in (*metrics.FROM_DOCUMENT, "startup")
        for verdict in verdicts
    )  # fmt: skip


def look(
    tops: Mapping[str, Path],
    changed: Collection[str],
    made: Measurement,
    machine: Machine,
    config: Config,
    *,
    tell: Callable[[str], None],
) -> tuple[tuple[Slower, ...], list[str]]:
    """Return the slower parts, the most costly of each kind first, and notes on missing evidence.

    `tops`: each side's checkout; `changed`: files that the change touches, as git names them there.
    An interrupt returns the results so far, because the verdict is final already.
    """
    seen: dict[str, list[Amounts]] = {"base": [], "head": []}
    lines: Lines = defaultdict(Counter)
    notes: dict[str, None] = {}
    began = time.monotonic()
    try:
        for number in range(ROUNDS):
            pace = (time.monotonic() - began) / number if number else 0.0
            if number >= LEAST_ROUNDS and pace * (number + 1) > SHARE * config.budget:
                break
            tell(f"locating the slowdown: round {number + 1} of {ROUNDS}")
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
) -> Iterator[tuple[Kind, str, tuple[float, float, float, float]]]:
    """Yield kind, name, and (base, head, low, high) of each item that takes longer in the head
    beyond chance: means over rounds, and Student's interval of the difference. The intervals hold
    for all items in question together (Bonferroni; not corrected for the choice by measurement)."""
    gained = 0.0
    for kind in KINDS:
        rounds = zip(base, head, strict=True)
        both = [(b[kind], h[kind]) for b, h in rounds if kind in b and kind in h]
        if len(both) < LEAST_ROUNDS:
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
    done = training.launch(
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


def _within(seen: training.Seen) -> dict[Kind, dict[str, float]]:
    """Return the seconds of the parts and the ops of a step. Graphs other than the main graph
    count as often as they run for each execution of the main graph."""
    found: dict[Kind, dict[str, float]] = {kind: defaultdict(float) for kind in ("part", "op")}
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
        under = side.under(stack_samples.recording(command, file, training.LOOKS_A_SECOND))
        try:
            whole.run(under, timeout=timeout)
            stacks = list(stack_samples.parse_stacks(file.read_text(errors="replace").splitlines()))
        except (UsageError, OSError) as error:
            message = f"py-spy could not sample the command, which must run Python ({error})"
            raise UsageError(message, remedy=None) from None
        return [s for s in stacks if s.frames and s.frames[-1].name not in _THREADS]


def _file(frame: Frame, top: Path) -> str:
    """Return a file of the checkout as git names it."""
    path = Path(frame.filename)
    return str(path.relative_to(top)) if path.is_relative_to(top) else frame.filename


def _titled(kind: Kind, what: str, lines: Lines) -> str:
    """Return the title of an item, with the line at which the head was sampled most often."""
    if kind != "python" or not lines.get(what):
        return what
    ((file, line), _) = lines[what].most_common(1)[0]
    return f"{file}:{line}{what.removeprefix(file)}"


def _touched(kind: Kind, what: str, changed: Collection[str]) -> bool:
    return kind == "python" and what.rpartition(" (")[0] in changed
