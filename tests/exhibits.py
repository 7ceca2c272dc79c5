"""Documents for the report's tests: a small network with timelines, its plan, a bench of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec
import synthetic

from dltune.base import documents
from dltune.bench.step_times import chosen
from dltune.plan.plan import merge_section
from dltune.plan.threads.decide import choose
from dltune.schemas import bench as bench_document
from dltune.schemas.bench import Bench, Ratio, Setting, Summary, Turn
from dltune.schemas.plan import Plan
from dltune.schemas.profile import (
    Count,
    Counters,
    Framework,
    Line,
    Memory,
    Part,
    Profile,
    Samples,
    Total,
)
from dltune.schemas.settings import Choice, Effect, Kind, Measured, SettingsPlan, Untried, Verdict
from dltune.simulate.workload import calibrated
from dltune.stats import paired_ratio


def profile(*, layers: int = 6, seed: int = 0, cores: int = 2) -> Profile:
    """With a measured timeline (the simulated one under the job's own settings), counters, memory
    and the parts of a step."""
    made = synthetic.network(
        synthetic.machine(cores), layers=layers, seed=seed, span=0.04, between=0.002
    )
    workload, _ = calibrated(made)
    timeline = workload.uniform(made.settings.intra, made.settings.inter).timelines[0]
    step = made.steps[0]
    nodes = tuple(
        msgspec.structs.replace(node, start=start, end=end)
        if node.op is not None and end > start
        else node
        for node, start, end in zip(step.nodes, timeline.start, timeline.end, strict=True)
    )
    step = msgspec.structs.replace(
        step,
        nodes=nodes,
        parts=(Part("ops", 0.03), Part("executor", 0.008), Part("python", 0.004)),
        lines=(Line("train.py:12 (fit)", 0.7), Line("data.py:3 (load)", 0.3)),
    )
    ops = tuple(
        msgspec.structs.replace(
            op,
            times=tuple(
                msgspec.structs.replace(
                    time, counts=(Count("task-clock", time.median * time.threads, 0.1, 5),)
                )
                for time in op.times
            ),
        )
        for op in made.ops
    )
    return msgspec.structs.replace(
        made,
        steps=(step,),
        ops=ops,
        memory=Memory(2**20, 3 * 2**20),
        counters=Counters(
            "software",
            "no hardware events here",
            (("task-clock",),),
            (Total("faults", 1, 2, 3, 6),),
        ),
    )


def plan(found: Profile, strategy: str = "auto") -> Plan:
    workload, _ = calibrated(found)
    return merge_section(
        None, "threads", choose(workload, strategy).threads(workload), found.machine, found
    )


def settings() -> SettingsPlan:
    """A search in which every verdict came up."""
    norm, memory = Choice("batch_norm", "fused"), Choice("allocator", "tcmalloc")

    def effect(
        verdict: Verdict,
        choice: Choice,
        measured: Measured | None,
        *beside: Choice,
        kind: Kind = "exact",
        why: str = "",
    ) -> Effect:
        return Effect((choice,), beside, kind, verdict, measured, why)

    return SettingsPlan(
        command=("python", "train.py"),
        chosen=(memory, norm),
        kind="rounding",
        whole=Measured(0.8, 0.78, 0.83, 0.99, 14),
        recommended=Measured(0.85, 0.82, 0.9, 0.99, 14),
        effects=(
            effect("helps", norm, Measured(0.86, 0.84, 0.89, 0.995, 9), kind="rounding"),
            effect("helps", memory, Measured(0.93, 0.9, 0.97, 0.995, 12), norm),
            effect("hurts", Choice("xla", "auto"), Measured(2.4, 1.8, None, 0.995, 5), norm),
            effect("no difference seen", Choice("input_threads", "1"),
                   Measured(1.002, 0.99, 1.01, 0.995, 30), norm),
            effect("not proven", Choice("threads", "2x1"), Measured(1.166, 0.994, 1.517, 0.995, 12),
                   why="slower in 12 of 12 rounds"),
            effect("undecided", Choice("onednn", "off"), Measured(1.1, None, None, 0.995, 2),
                   why="the budget was spent"),
            effect("failed", Choice("jit_compile", "on"), None, why="the job ended with code 1"),
            effect("no effect", Choice("steps_per_execution", "8"), None,
                   why="the job does not call fit"),
        ),
        untried=(Untried("mpi_yield", None, "the command starts no ranks"),
                 Untried("allocator", "mimalloc", "libmimalloc is not installed")),
        seconds=580.0,
        partial=None,
    )  # fmt: skip


def bench(made: Plan, there: Profile, times: dict[str, Sequence[float]]) -> Bench:
    """`times`: by setting the step of each round, in seconds; the first is the reference."""
    reference = next(iter(times))
    settings = []
    for name, steps in times.items():
        found = paired_ratio(list(zip(steps, times[reference], strict=False)))
        settings.append(
            Setting(
                name=name,
                intra=2,
                inter=1,
                cpus=None,
                predicted=steps[0],
                turns=tuple(Turn(n, (s, s * 1.01), s, 10, 5) for n, s in enumerate(steps)),
                summary=Summary(
                    step=Samples(len(steps), min(steps), median(steps), 0.02),
                    ratio=None
                    if name == reference
                    else Ratio(found.median, found.low, found.high, found.confidence, found.rounds),
                    efficiency=None,
                    cpu_seconds=1.0,
                    voluntary=10,
                    involuntary=5,
                ),
            )
        )
    return Bench(
        schema=bench_document.SCHEMA,
        created="2026-01-01T00:00:00+00:00",
        dltune="0",
        partial=None,
        command=("python", "train.py"),
        machine=there.machine,
        framework=Framework("tensorflow", "2.21.0", "", ""),
        plan=documents.digest(made),
        strategy=", ".join(chosen(made)),
        reference=reference,
        rounds=max(map(len, times.values())),
        settings=tuple(settings),
    )
