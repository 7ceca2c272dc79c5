"""Results of a bench: its document, its tables, and its step times in pyperf's file format."""

from __future__ import annotations

import importlib.util
import io
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence

from dltune import __version__, stats
from dltune.analysis.op_causes import FAULT_SECONDS
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import Table, columns
from dltune.bench.contestants import AS_FOUND, ONE_CORE, RECOMMENDED
from dltune.bench.runner import Runner
from dltune.plan.plan import ordered_sections
from dltune.plan.planner import load_planner
from dltune.schemas import bench as doc
from dltune.schemas.bench import Bench, Setting
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan, Threads
from dltune.stats import paired_ratio
from dltune.turns.rounds import Rounds


def assemble(
    rounds: Rounds[Runner], *, plan: Plan, machine: Machine, command: Sequence[str]
) -> doc.Bench:
    """Return the bench document of the turns so far. Ratios are relative to the job as found if
    it was measured, else to "recommended", else to the first setting."""
    names = [runner.setting.name for runner in rounds.jobs]
    reference = next((name for name in (AS_FOUND, RECOMMENDED) if name in names), names[0])
    medians = {
        name: {turn.round: turn.median for turn in turns} for name, turns in rounds.turns.items()
    }
    settings = []
    for runner in rounds.jobs:
        setting = runner.setting
        pools = runner.pools or setting.uniform
        settings.append(
            doc.Setting(
                name=setting.name,
                intra=pools.intra if pools else len(machine.cores),
                inter=pools.inter if pools else len(machine.cores),
                cpus=setting.cpus,
                predicted=runner.predicted,
                turns=tuple(rounds.turns[setting.name]),
                summary=summary(
                    rounds.turns[setting.name],
                    medians[setting.name],
                    medians[reference] if setting.name != reference else {},
                    medians.get(ONE_CORE, {}),
                    len(machine.cores),
                ),
                choices=setting.applied.choices,
            )
        )
    return doc.Bench(
        schema=doc.SCHEMA,
        created=documents.now(),
        dltune=__version__,
        partial=rounds.partial,
        command=tuple(command),
        machine=machine,
        framework=rounds.jobs[0].framework,
        plan=documents.digest(plan),
        strategy=", ".join(chosen(plan)),
        reference=reference,
        rounds=rounds.rounds,
        settings=tuple(settings),
    )


def chosen(plan: Plan) -> Iterator[str]:
    """Yield the decision of each section in a few words."""
    if threads := plan.of(Threads):
        yield threads.strategy
    choices = (load_planner(name).choice(section) for name, section in ordered_sections(plan))
    yield from filter(None, choices)


def summary(
    turns: Sequence[doc.Turn],
    mine: Mapping[int, float],
    reference: Mapping[int, float],
    one_core: Mapping[int, float],
    cores: int,
) -> doc.Summary | None:
    """Summary of the turns; None when there are none.

    `mine`, `reference` and `one_core` map a round to the median step of that round in seconds; only
    rounds in which both took part are compared.
    """
    if not turns:
        return None
    steps = [step for turn in turns for step in turn.steps]
    pairs = [(mine[r], reference[r]) for r in mine if r in reference]
    efficiencies = [one_core[r] / (cores * mine[r]) for r in mine if r in one_core]
    ratio = paired_ratio(pairs) if pairs else None
    return doc.Summary(
        step=stats.summary(steps),
        ratio=doc.Ratio(ratio.median, ratio.low, ratio.high, ratio.confidence, ratio.rounds)
        if ratio
        else None,
        efficiency=statistics.median(efficiencies) if efficiencies else None,
        cpu_seconds=statistics.median([turn.cpu_seconds for turn in turns]),
        voluntary=statistics.median([turn.voluntary for turn in turns]),
        involuntary=statistics.median([turn.involuntary for turn in turns]),
    )


# Tables of a bench: measured and predicted times, and the cost

NONE = "-"
# share of a step: a difference in page faults that takes as much is reported
CHANCE = 0.01


def measured(bench: Bench) -> list[Setting]:
    """The settings that had turns enough for a summary."""
    return [setting for setting in bench.settings if setting.summary]


def times(bench: Bench) -> Table:
    """Raises StopIteration for a bench without its reference."""
    reference = next(s for s in bench.settings if s.name == bench.reference)
    rounds = min(len(setting.turns) for setting in measured(bench))
    title = f"{rounds} round{'s' * (rounds > 1)}; threads are intra-op x inter-op"
    heads = [
        *("setting", ">threads", ">step ms", ">spread", ">ratio", ">95 % interval"),
        *(">predicted ms", ">predicted ratio"),
    ]
    rows = [_times(s, reference) for s in measured(bench)]
    if any(found := [scheduling(s) for s in measured(bench)]):
        title += "; E: overlap of transfers with ops, 1 is the maximum"
        heads.append(">E")
        rows = [
            (*row, f"{statistics.median(each):.2f}" if each else NONE)
            for row, each in zip(rows, found, strict=True)
        ]
    return Table(title, columns(*heads), rows, name="bench-table", gap=False)


def scheduling(setting: Setting) -> list[float]:
    """E of each of its steps."""
    return [one for turn in setting.turns for one in turn.scheduling]


def costs(bench: Bench) -> Table:
    """A step's; efficiency is there when one core was measured."""
    heads = ("setting", ">efficiency", ">CPU s", ">voluntary", ">involuntary", ">page faults")
    title = "CPU time, context switches and page faults are per step"
    found = [heads, *map(_costs, measured(bench))]
    if any(s.summary and s.summary.efficiency for s in bench.settings):
        title = f"efficiency is T(1 core) / ({len(bench.machine.cores)} x T); {title}"
    else:
        found = [(name, *rest) for name, _, *rest in found]
    if all(_faults(setting) is None for setting in bench.settings):
        found = [tuple(rest) for *rest, _ in found]
    return Table(title, columns(*found[0]), found[1:], name="costs-table")


def _times(setting: Setting, reference: Setting) -> tuple[str, ...]:
    found = setting.summary
    assert found is not None
    ratio = found.ratio
    predicted = setting.predicted
    expected = predicted / reference.predicted if predicted and reference.predicted else None
    return (
        setting.name,
        f"{setting.intra}x{setting.inter}",
        f"{found.step.median * 1e3:.2f}",
        f"{found.step.spread:.1%}",
        f"{ratio.median:.3f}" if ratio else "1" if setting is reference else NONE,
        f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio else NONE,
        NONE if predicted is None else f"{predicted * 1e3:.2f}",
        NONE if expected is None else f"{expected:.3f}",
    )


def _costs(setting: Setting) -> tuple[str, ...]:
    found = setting.summary
    assert found is not None
    return (
        setting.name,
        NONE if found.efficiency is None else f"{found.efficiency:.3f}",
        f"{found.cpu_seconds:.3g}",
        f"{found.voluntary:.0f}",
        f"{found.involuntary:.0f}",
        NONE if (faults := _faults(setting)) is None else f"{faults:.0f}",
    )


def _faults(setting: Setting) -> float | None:
    """Page faults of a step, the median of its turns; None where they were not read."""
    read = [turn.faults for turn in setting.turns if turn.faults is not None]
    return statistics.median(read) if read else None


def speed_up(setting: Setting, bench: Bench) -> str:
    """Return how much faster a setting is than the reference; empty for the reference itself."""
    ratio = setting.summary and setting.summary.ratio
    if not ratio:
        return ""
    reference = "found" if bench.reference == AS_FOUND else bench.reference
    return (
        f"{setting.name}: {1 / ratio.median:.2f}x as fast as {reference} "
        f"({ratio.confidence:.0%} interval {1 / ratio.high:.2f} to {1 / ratio.low:.2f})"
    )


def by_chance(bench: Bench) -> Iterator[str]:
    """Yield differences of settings caused by the memory layout of their jobs: an allocator that
    returns memory to the system and takes it again in the next step does so in one process and not
    in another. A sentence for each that differs so from the reference."""
    reference = next(s for s in bench.settings if s.name == bench.reference)
    if (usual := _faults(reference)) is None:
        return
    for setting in measured(bench):
        faults, step = _faults(setting), setting.summary.step.median if setting.summary else 0.0
        if setting is reference or faults is None or setting.choices != reference.choices:
            continue
        more = abs(faults - usual)
        least = FAULT_SECONDS * more
        if least >= CHANCE * step:
            yield (
                f"{setting.name} has {more:,.0f} {'more' if faults > usual else 'fewer'} "
                f"page faults per step than {reference.name}; they take at least "
                f"{least * 1e3:.2g} ms. They can differ between two processes under one setting; "
                "an allocator that keeps its memory avoids them (dltune tune --only allocator)"
            )


# Measured step times in pyperf's file format, so that its tools show and compare them


def require_pyperf() -> None:
    """Raises UsageError when pyperf is not installed: call it before anything is measured."""
    if importlib.util.find_spec("pyperf") is None:
        raise UsageError(
            "--pyperf needs the package pyperf, which is not installed",
            remedy="pip install 'dltune[bench]', or leave out --pyperf",
        )


def encode(
    settings: Mapping[str, Sequence[Sequence[float]]],
    *,
    cpu_model: str,
    cores: int,
    command: Sequence[str],
    framework: str = "none",
    plan: str = "none",
) -> bytes:
    """Return the bytes of a pyperf suite.

    The suite has one benchmark per setting, one run per turn (one process), and one value per step
    in seconds. Read it with `python -m pyperf show FILE`, and compare two files with
    `python -m pyperf compare_to A B`.

    `settings`: setting -> turns -> the seconds of each step, at least one setting with at least one
    step each. Turns without a step are left out. `cores`: those allowed when they were measured;
    `plan`: the plan file's name.

    Raises UsageError when pyperf is not installed, ValueError when a setting has no step or a time
    is not positive.
    """
    require_pyperf()
    import pyperf  # type: ignore[import-untyped]

    metadata = {
        "cpu_model_name": cpu_model,
        "cpu_count": cores,
        "command": shlex.join(command),
        "plan": plan,
        "framework": framework,
        "dltune_version": __version__,
        "unit": "second",
        "loops": 1,
    }
    benchmarks = []
    for setting, turns in settings.items():
        # pyperf would describe this process; the times are the job's
        runs = [
            pyperf.Run(tuple(turn), metadata={**metadata, "name": setting}, collect_metadata=False)
            for turn in turns
            if turn
        ]
        if not runs:
            raise ValueError(f"setting {setting!r} has no step")
        benchmarks.append(pyperf.Benchmark(runs))
    file = io.StringIO()
    pyperf.BenchmarkSuite(benchmarks).dump(file)
    return file.getvalue().encode()
