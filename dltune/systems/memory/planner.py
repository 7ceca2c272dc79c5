"""Planner of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dltune.base.errors import UsageError
from dltune.plan.duration import Duration
from dltune.plan.planner import Decision, Enforcement, Planner, Run
from dltune.schemas.plan import Plan
from dltune.systems.memory import section as memory
from dltune.systems.memory.section import Memory
from dltune.views import View

if TYPE_CHECKING:
    from dltune.schemas.profile import Profile
    from dltune.systems.memory.decide import Planned
    from dltune.systems.memory.request import Request

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
            self.fail(
                f"{value!r} is not a memory size of at least 1B: use a number and one of the units "
                "B, KiB, MiB and GiB, such as 8GiB",
                param,
                ctx,
            )
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
            self.fail(f"{value!r} is not a percentage from 0% to 100000%, such as 10%", param, ctx)
        return share


class MemoryPlanner(Planner[Memory]):
    name = "memory"
    summary = "Choose which results a step recomputes to fit into a memory budget."
    example = "dltune plan memory profile.json --budget 8GiB"
    section = Memory
    after = ("settings", "allreduce", "threads", "transfers")

    def parameters(self) -> Sequence[click.Parameter]:
        return [
            click.Argument(["profile"], type=click.Path(path_type=Path)),
            click.Option(
                ["--budget"],
                type=Bytes(),
                metavar="SIZE",
                help="Limit the total memory of the framework's allocator to SIZE, such as 8GiB.",
            ),
            click.Option(["--smallest"], is_flag=True, help="Minimise memory, at any slowdown."),
            click.Option(
                ["--slowdown"],
                type=Percent(),
                metavar="PERCENT",
                help="Minimise memory, subject to at most this slowdown of op time, such as 10%.",
            ),
            click.Option(
                ["--largest-batch"],
                is_flag=True,
                help="With --budget: find the largest batch that fits (TensorFlow only).",
            ),
            click.Option(
                ["--deepest"],
                is_flag=True,
                help="With --budget: report how many repeated blocks could be added to the network "
                "(TensorFlow only).",
            ),
            click.Option(
                ["--offload"],
                type=click.Path(path_type=Path, file_okay=False, exists=True),
                metavar="FOLDER",
                help="With --budget: move results to a file in FOLDER while they are not needed "
                "(TensorFlow only).",
            ),
            click.Option(
                ["--solve"],
                type=Duration(),
                metavar="TIME",
                help="With --budget: search for the best selection for TIME, such as 60s.",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[Memory]:
        """Pass exactly one of --budget, --smallest and --slowdown.

        Results of the forward pass stay in memory until the backward pass reads them. The plan
        frees results that are cheap to compute, and computes them again before they are read. The
        values of the results do not change.

        `dltune run --plan` applies the plan: in TensorFlow it rewrites the graph of the step, whose
        ops then run one at a time in a fixed order; in PyTorch it uses hooks of autograd.
        """
        return _decide(**parameters)

    def names_ops(self, section: Memory) -> bool:
        return section.compiled is None

    def relief(self, profile: Profile) -> str | None:
        from dltune.systems.memory.decide import decide

        try:
            section = decide(profile).section
        except UsageError:
            return None
        return (
            f"`dltune plan memory` can reduce a step's memory from {section.before / 2**20:.0f} "
            f"MiB to {section.peak / 2**20:.0f} MiB"
        )

    def enforce(self, section: Memory, run: Run) -> Enforcement:
        if section.calls or section.compiled is not None:
            from dltune.systems.memory.enforce import EnforcedCalls

            return EnforcedCalls(section, run)
        from dltune.systems.memory.enforce import EnforcedMemory

        return EnforcedMemory(section, run)

    def show(self, section: Memory, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        from dltune.systems.memory.show import shown

        return shown(section)


PLANNER = MemoryPlanner()


def _decide(profile: Path, **options: Any) -> Decision[Memory]:
    from dltune.native import solver
    from dltune.schemas import profile as documents
    from dltune.systems.memory import show
    from dltune.systems.memory.decide import decide
    from dltune.systems.memory.pytorch import decide_compiled
    from dltune.systems.memory.request import Request

    request = Request(**options, bounded=solver.installed())
    measured = documents.load(profile)
    request.require_support(measured)
    if measured.compiled is not None:
        section = decide_compiled(measured, measured.compiled, request)
        return Decision(
            section,
            measured.machine,
            measured,
            choice=show.choice(section),
            shown=show.decision(section),
            summary={field: getattr(section, field) for field in (*memory.FIGURES, "compiled")},
        )
    depths = None
    if request.deepest and request.budget is not None:
        from dltune.systems.memory.deepest import deepest

        depths = deepest(measured, request.budget)
    planned = decide(measured, request)
    section = planned.section
    remarks = list(_remarks(planned, request))
    if depths and depths.planned.blocks == depths.tried:
        remarks.append(
            f"networks of more than {depths.tried} blocks were not tried and can also fit"
        )
    summary = {field: getattr(section, field) for field in (*memory.FIGURES, "again")}
    summary["bound"] = planned.bound
    return Decision(
        section,
        measured.machine,
        measured,
        choice=show.choice(section),
        remarks=remarks,
        shown=show.decision(section, depths),
        summary={**summary, "deepest": depths} if depths else summary,
    )


def _remarks(planned: Planned, request: Request) -> Iterator[str]:
    from dltune.system.memory import in_memory
    from dltune.systems.memory.show import mib

    section, peak = planned.section, planned.peak
    largest = ", ".join(f"{name} {mib(bytes)}" for name, bytes in peak.largest)
    yield (
        f"without a plan, the memory of a step peaks at {peak.at}: {mib(peak.bytes)} plus "
        f"{mib(section.live)} of persistent memory; largest tensors at the peak: {largest}"
    )
    if planned.failure is not None:
        yield f"{planned.failure}; the plan uses the best selection up to then"
    if planned.bound is not None and section.again:
        longer = (section.seconds + section.added) / (section.seconds + planned.bound) - 1
        yield (
            "in this order of ops, every selection adds at least "
            f"{planned.bound / section.seconds:.2%} to the step; the planned step takes at most "
            f"{longer:.2%} longer than with the best selection"
        )
    if section.batch is not None:
        yield (
            f"a batch of {section.batch} samples fits; set this batch size in the job. If that "
            "changes the job's graph, profile the job and plan again"
        )
    if (offload := request.offload) and (tier := request.tier):
        speed = (
            f"{offload} reads and writes at {tier.bandwidth / 1e6:,.0f} MB/s without the page cache"
        )
        if section.offloaded:
            yield (
                f"{speed}: a step waits {section.waited:.2f} s for copies at this speed, and less "
                "while they fit into the page cache"
            )
        else:
            yield f"{speed}: nothing is offloaded because recomputing is faster"
        if in_memory(offload):
            yield f"{offload} is on a file system in memory: offloaded tensors still use memory"
    if section.hooks:
        yield (
            f"dltune's own work in a step is predicted to take {section.hooks * 1e3:.1f} ms of the "
            f"added {section.longer * 1e3:.1f} ms"
        )
    if not (section.again or section.offloaded):
        if section.calls and request.slowdown is not None:
            yield (
                "nothing is recomputed: no selection takes less memory within a slowdown of "
                f"{request.slowdown:.0%}, with dltune's own work included"
            )
        else:
            yield "nothing is recomputed: changing the order of the ops is sufficient"
