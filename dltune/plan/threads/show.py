"""Section on threads and its outcome, for users."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dltune.base.formatting import Bar, Key, Table, columns
from dltune.plan.threads.fitted import Fitted, Handling
from dltune.schemas.bench import Bench
from dltune.schemas.plan import OpPlan, Threads, Uniform
from dltune.views import Headline, Section, View

# one in this many executions is recorded op by op, to compare the plan with the executed ops
RECORD_EVERY = 64
UNMET = 5  # the most ops in the list of those that did not run as planned


@dataclass(frozen=True)
class ProcessOutcome:
    """Outcome of a run in one process. Times are in seconds.

    `met`, `unmet`: keys of the plan that the job did and did not run. `overhead`: time of dltune's
    own work in a recorded step, over all threads, as a share of a step's wall time (None: no step
    was recorded). `overridden`: the script's own (intra, inter), which the plan replaced (0: the
    script set none).
    """

    pid: int
    rank: int | None
    steps: int
    median: float
    spread: float
    met: tuple[str, ...]
    unmet: tuple[str, ...]
    overhead: float | None
    overridden: tuple[int, int]
    in_flight: float
    avoided: tuple[tuple[str, str], ...]


def shown(section: Threads, beside: Sequence[msgspec.Struct] = ()) -> View:
    """Return the predicted time of each strategy (Fig. 3), its time in a bench of `beside`, and the
    decision for each op."""
    bench = next((document for document in beside if isinstance(document, Bench)), None)
    sections = [
        Section("strategies", "Strategies", [predictions(section, bench)]),
        Section("ops", "Planned ops", [_ops(section)]),
    ]
    return View(sections, [_headline(section)])


def predictions(section: Threads, bench: Bench | None = None) -> Table:
    """Return a table of all settings and strategies, with their measured times from `bench`."""
    measured: dict[str, float] = {}
    for setting in bench.settings if bench else ():
        if setting.summary:
            # the bench calls the plan's setting "plan", and the best uniform one "uniform"
            uniform = Uniform(setting.intra, setting.inter).setting
            name = {"plan": section.strategy, "uniform": uniform}.get(setting.name, setting.name)
            measured.setdefault(name, setting.summary.step.median)

    def in_job(setting: str) -> str:
        return f"{measured[setting] * 1e3:.1f}" if setting in measured else ""

    most = max((p.speedup for p in section.predictions), default=1.0) or 1.0
    rows = [
        (
            found.setting,
            f"{found.seconds * 1e3:.1f}",
            Bar(found.speedup / most, chosen=found.setting == section.strategy),
            f"{found.speedup:.3f}",
            f"{found.corunning:.2f}",
            *([in_job(found.setting)] * bool(measured)),
            "chosen" if found.setting == section.strategy else "",
        )
        for found in section.predictions
    ]
    heads = ["setting", ">predicted ms", "", ">speed-up over recommended", ">ops in flight"]
    heads += [">measured ms"] * bool(measured)
    return Table(
        "predicted time per round (one run of each training step), by strategy",
        columns(*heads, ""),
        rows,
    )


def _ops(section: Threads) -> Table | str:
    uniform = section.uniform
    if not section.ops:
        return (
            f"The plan is one setting for all ops: intra-op {uniform.intra}, "
            f"inter-op {uniform.inter}."
        )
    rows = [
        (
            Key(op.key),
            str(op.threads),
            op.placement,
            f"{op.seconds * 1e3:.3f}",
            f"{op.serial * 1e3:.3f}",
            ", ".join(f"{c.threads} {c.placement}" for c in op.candidates),
        )
        for op in section.ops
    ]
    heads = ("op", ">threads", "placement", ">predicted ms", ">1 thread ms", "may co-run with")
    title = (
        f"Ops planned one by one; all other ops run with intra-op {uniform.intra}, "
        f"inter-op {uniform.inter}"
    )
    return Table(title, columns(*heads), rows)


def _headline(section: Threads) -> Headline:
    chosen = section.chosen
    sentence = (
        f"The plan is {section.strategy}: predicted {chosen.seconds * 1e3:.1f} ms per round, "
        f"{chosen.speedup:.3f}x as fast as the recommended setting"
    )
    if not section.ops:
        sentence += "; no per-op plan is predicted to be faster"
    return Headline(1, sentence + ".")


def intent(fitted: Fitted, uniform: Uniform, signatures: Collection[str]) -> Iterator[str | Table]:
    """Yield the intended effect; `uniform`: sizes of the framework's own pools."""
    section = fitted.section
    yield (
        f"{section.strategy}: the framework's thread pools get intra-op {uniform.intra}, "
        f"inter-op {uniform.inter}; ops planned one by one: {len(section.ops)}"
    )
    if section.corun:
        threads = " and on second hardware threads" if section.hyperthreads else ""
        yield f"ops co-run on separate cores{threads}"
    if not section.ops:
        return
    placed = fitted.orders(1, signatures).ops

    def row(op: OpPlan) -> tuple[Key, str, str, str]:
        handling = fitted.handling(op)
        happens = {
            Handling.PLACED: ",".join(map(str, placed[op.key][1])) if op.key in placed else "",
            Handling.ADMITTED: "chosen at run time",
            Handling.SMALL: f"not changed: shorter than {section.small:g} s",
            Handling.DROPPED: "not changed: cores missing",
        }[handling]
        enforced = handling in (Handling.PLACED, Handling.ADMITTED)
        threads = str(op.threads) if enforced else "-"
        return Key(op.key), threads, happens, f"{op.seconds * 1e3:.3f}"

    rows = [row(op) for op in sorted(section.ops, key=lambda op: -op.seconds)]
    yield Table("", columns("op", ">threads", "cores", ">predicted ms"), rows)


def sentences(outcome: ProcessOutcome, section: Threads) -> Iterator[str]:
    """Yield the outcome of the section in one process."""
    who = f"rank {outcome.rank}" if outcome.rank is not None else f"pid {outcome.pid}"
    predicted = {p.setting: p.seconds for p in section.predictions}.get(section.strategy)
    text = f"{who}: {outcome.steps} steps, median {outcome.median * 1e3:.1f} ms"
    text += f" (spread {outcome.spread:.0%})"
    if predicted and outcome.rank is None:
        text += f", predicted {predicted * 1e3:.1f} ms"
    yield text
    if planned := len(outcome.met) + len(outcome.unmet):
        yield f"{who}: {len(outcome.met)} of {planned} planned ops ran as planned"
        yield from (f"  did not run as planned: {key}" for key in outcome.unmet[:UNMET])
        if len(outcome.unmet) > UNMET:
            yield f"  and {len(outcome.unmet) - UNMET} more"
    else:
        yield f"{who}: the plan is one setting for all ops ({section.strategy})"
    if outcome.overhead is not None:
        yield (
            f"{who}: dltune's own work, in the one step of {RECORD_EVERY} that it records, took "
            f"{outcome.overhead:.2%} of that step (time of all threads, waiting for a CPU included)"
        )
    asked = [
        f"{name} {asked} -> {given}"
        for name, asked, given in zip(
            ("intra-op", "inter-op"),
            outcome.overridden,
            (section.uniform.intra, section.uniform.inter),
            strict=True,
        )
        if asked
    ]
    if asked:
        yield f"{who}: the plan overrode settings of the script: {', '.join(asked)}"
    if section.corun:
        yield f"{who}: {outcome.in_flight:.2f} ops in flight on average"
    for a, b in outcome.avoided:
        yield f"{who}: these ops slow each other down and no longer run at the same time: {a} | {b}"
