"""The planner of memory, as the registry knows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from dltune.documents.plan import Plan
from dltune.documents.sections import memory
from dltune.documents.sections.memory import Memory
from dltune.errors import UsageError
from dltune.planners.duration import Duration
from dltune.planners.enforcement import Enforcement, Run
from dltune.planners.planner import Decision, Planner
from dltune.planners.shown import Shown

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


_MOST = 2**60  # bytes
_LONGEST = 1e3  # times as long


class Bytes(click.ParamType[int]):
    """An amount of memory, as 8GiB or 500MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB)", value)
        bytes = float(found[1]) * _UNITS[found[2]] if found else 0.0
        if not 1 <= bytes <= _MOST:
            self.fail(f"{value!r} is no amount of memory, such as 8GiB or 500MiB", param, ctx)
        return round(bytes)


class Percent(click.ParamType[float]):
    """A share, as 10%."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", value)
        share = float(found[1]) / 100.0 if found else -1.0
        if not 0 <= share <= _LONGEST:
            self.fail(f"{value!r} is no share, such as 10%", param, ctx)
        return share


class MemoryPlanner(Planner[Memory]):
    name = "memory"
    summary = "What a step computes again so that it fits into a budget of memory."
    section = Memory
    after = ("settings", "allreduce", "threads", "transfers")

    def faults(self, section: Memory, plan: Plan) -> Iterator[str]:
        return memory.faults(section)

    def parameters(self) -> Sequence[click.Parameter]:
        return [
            click.Argument(["profile"], type=click.Path(path_type=Path)),
            click.Option(
                ["--budget"],
                type=Bytes(),
                metavar="SIZE",
                help="What the framework's allocator may hold in all, such as 8GiB.",
            ),
            click.Option(["--smallest"], is_flag=True, help="As little as can be."),
            click.Option(
                ["--slowdown"],
                type=Percent(),
                metavar="PERCENT",
                help="As little as ops can do with that take so much longer in all, such as 10%.",
            ),
            click.Option(
                ["--largest-batch"],
                is_flag=True,
                help="With --budget: for as many examples a step as it has room for.",
            ),
            click.Option(
                ["--deepest"],
                is_flag=True,
                help="With --budget: tell how many more of its blocks the network could have.",
            ),
            click.Option(
                ["--offload"],
                type=click.Path(path_type=Path, file_okay=False, exists=True),
                metavar="FOLDER",
                help="With --budget: let results leave for a file in this folder meanwhile.",
            ),
            click.Option(
                ["--solve"],
                type=Duration(),
                metavar="TIME",
                help="With --budget: look for the best selection that long, such as 60s.",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[Memory]:
        """Results of the forward pass wait in memory for the backward pass; those that are cheap to
        compute are computed again instead. Numbers stay as they are. `dltune run` has the job's
        graph do so, one op after the other, or PyTorch's autograd."""
        return _decide(**parameters)

    def names_ops(self, section: Memory) -> bool:
        return section.compiled is None

    def enforce(self, section: Memory, run: Run) -> Enforcement:
        if section.calls or section.compiled is not None:
            from dltune.planners.memory.enforce_calls import EnforcedCalls

            return EnforcedCalls(section, run)
        from dltune.planners.memory.enforce import EnforcedMemory

        return EnforcedMemory(section, run)

    def show(self, section: Memory, plan: Plan, beside: Sequence[msgspec.Struct]) -> Shown:
        from dltune.planners.memory.show import shown

        return shown(section)


PLANNER = MemoryPlanner()


def _decide(
    profile: Path,
    budget: int | None,
    smallest: bool,
    slowdown: float | None,
    largest_batch: bool,
    deepest: bool,
    offload: Path | None,
    solve: float | None,
) -> Decision[Memory]:
    from dltune.documents import profile as documents
    from dltune.machine.storage import file_tier, in_memory
    from dltune.native import solver
    from dltune.planners.memory import show
    from dltune.planners.memory.compiled import decide as decide_compiled
    from dltune.planners.memory.decide import decide

    if [budget is not None, smallest, slowdown is not None].count(True) != 1:
        raise UsageError(
            "give one of --budget, --smallest, and --slowdown", remedy="such as --budget 8GiB"
        )
    if largest_batch and budget is None:
        raise UsageError("--largest-batch is for a --budget", remedy="such as --budget 8GiB")
    if deepest and (budget is None or largest_batch):
        raise UsageError(
            "--deepest is for a --budget and the job's own batch", remedy="such as --budget 8GiB"
        )
    if offload is not None and (budget is None or largest_batch or solve is not None):
        raise UsageError("--offload is for a --budget alone", remedy="such as --budget 8GiB")
    if solve is not None:
        if budget is None:
            raise UsageError("--solve is for a --budget", remedy="such as --budget 8GiB")
        solver.require()
    found = documents.load(profile)
    if found.compiled is not None:
        if largest_batch or deepest or offload or solve is not None:
            raise UsageError(
                "what PyTorch compiles has no --largest-batch, --deepest, --offload or --solve",
                remedy="give --budget, --smallest or --slowdown alone",
            )
        section = decide_compiled(found, found.compiled, budget, slowdown)
        return Decision(
            section,
            found.machine,
            found,
            choice=show.choice(section),
            shown=show.decision(section),
            summary={field: getattr(section, field) for field in (*memory.FIGURES, "compiled")},
        )
    depths = None
    if deepest and budget is not None:
        from dltune.planners.memory import deepest as deeper

        depths = deeper.deepest(found, budget)
    tier = file_tier(offload) if offload else None
    planned = decide(
        found,
        budget,
        slowdown,
        largest_batch=largest_batch,
        tier=tier,
        bounded=solver.installed(),
        solve=solve,
    )
    section, peak = planned.section, planned.peak
    if offload and section.offloaded:
        section = msgspec.structs.replace(section, folder=str(offload.resolve()))
    largest = ", ".join(f"{name} {show.mib(bytes)}" for name, bytes in peak.largest)
    remarks = [
        f"as the job is, a step needs most at {peak.at}: {show.mib(peak.bytes)} beside the "
        f"{show.mib(section.live)} that it finds; the largest tensors then are of "
        f"{largest}"
    ]
    if planned.failure is not None:
        remarks.append(f"{planned.failure}; what was selected until then stands")
    if planned.bound is not None and section.again:
        longer = (section.seconds + section.added) / (section.seconds + planned.bound) - 1
        remarks.append(
            f"in this order no selection adds less than {planned.bound / section.seconds:.2%}: the "
            f"step takes {longer:.2%} longer than with the best, at most"
        )
    if section.batch is not None:
        remarks.append(
            f"{section.batch} examples a step have room; the job must be given as many itself, and "
            "profiled and planned again where its graph is another then"
        )
    if tier and offload:
        speed = f"{offload} takes and gives {tier.bandwidth / 1e6:,.0f} MB/s without the page cache"
        if section.offloaded:
            waits = f"a step waits {section.waited:.2f} s for copies at that speed"
            remarks.append(f"{speed}: {waits}, and less as long as the kernel has room for them")
        else:
            remarks.append(f"{speed}: nothing is offloaded, to compute again takes less time")
        if in_memory(offload):
            remarks.append(f"{offload} is in memory itself, where what is offloaded counts too")
    if not (section.again or section.offloaded):
        remarks.append("nothing is computed again: the order in which ops run is enough")
    if depths and depths.planned.blocks == depths.tried:
        remarks.append(f"more than {depths.tried} blocks were not tried: they may fit")
    summary = {field: getattr(section, field) for field in (*memory.FIGURES, "again")}
    summary["bound"] = planned.bound
    return Decision(
        section,
        found.machine,
        found,
        choice=show.choice(section),
        remarks=remarks,
        shown=show.decision(section, depths),
        summary={**summary, "deepest": depths} if depths else summary,
    )
