"""Put together the bench document from the settings' times in their turns."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from dltune import __version__, stats
from dltune.base import documents
from dltune.bench.contest import Contest
from dltune.bench.settings import AS_FOUND, ONE_CORE, RECOMMENDED
from dltune.plan.plan import in_order
from dltune.plan.registry import planner
from dltune.schemas import bench as doc
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan, Threads
from dltune.stats import paired_ratio


def assemble(
    contest: Contest, *, plan: Plan, machine: Machine, command: Sequence[str]
) -> doc.Bench:
    """Return the bench document of the turns so far. Ratios are relative to the job as found if
    it was measured, else to "recommended", else to the first setting."""
    names = [runner.setting.name for runner in contest.runners]
    reference = next((name for name in (AS_FOUND, RECOMMENDED) if name in names), names[0])
    medians = {
        name: {turn.round: turn.median for turn in turns} for name, turns in contest.turns.items()
    }
    settings = []
    for runner in contest.runners:
        setting = runner.setting
        pools = runner.pools or setting.uniform
        settings.append(
            doc.Setting(
                name=setting.name,
                intra=pools.intra if pools else len(machine.cores),
                inter=pools.inter if pools else len(machine.cores),
                cpus=setting.cpus,
                predicted=runner.predicted,
                turns=tuple(contest.turns[setting.name]),
                summary=summary(
                    contest.turns[setting.name],
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
        partial=contest.partial,
        command=tuple(command),
        machine=machine,
        framework=contest.runners[0].framework,
        plan=documents.digest(plan),
        strategy=", ".join(chosen(plan)),
        reference=reference,
        rounds=contest.rounds,
        settings=tuple(settings),
    )


def chosen(plan: Plan) -> Iterator[str]:
    """Yield the decision of each section in a few words."""
    if threads := plan.of(Threads):
        yield threads.strategy
    choices = (planner(name).choice(section) for name, section in in_order(plan))
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
