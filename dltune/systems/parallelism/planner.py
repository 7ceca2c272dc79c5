"""Planner of parallelism."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from dltune.base.errors import UsageError
from dltune.plan.duration import Duration
from dltune.plan.planner import Decision, Enforcement, Planner, Run
from dltune.schemas.plan import Plan
from dltune.systems.parallelism.schemas import strategy as parallelism
from dltune.systems.parallelism.schemas.strategy import Consumer, Parallelism
from dltune.views import Schedule, View

if TYPE_CHECKING:
    from dltune.systems.parallelism.inputs import Given
    from dltune.systems.parallelism.model.problem import Space
    from dltune.systems.parallelism.schemas.topology import Topology


class Named(click.ParamType[Path | str]):
    """A file, else the name of something published."""

    name = "file or name"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        path = Path(value)
        return path if path.exists() or path.suffix in (".json", ".gz") else str(value)


class Mesh(click.ParamType[tuple[int, ...]]):
    """The lengths of a mesh's axes, as 2x2."""

    name = "mesh"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"\d{1,6}(x\d{1,6})*", value):
            self.fail(f"{value!r} is not a mesh such as 2x2", param, ctx)
        shape = tuple(map(int, value.split("x")))
        if min(shape) < 2:
            self.fail(
                f"an axis of {value!r} has fewer than 2 devices; use 2 or more on each axis",
                param,
                ctx,
            )
        return shape


class ParallelismPlanner(Planner[Parallelism]):
    name = "parallelism"
    summary = "Choose how to divide each operator of a network over devices."
    example = "dltune plan parallelism profile.json --topology p100:16"
    section = Parallelism
    tables = ("operators",)
    starts_disabled = True
    formats = get_args(Consumer)

    def parameters(self) -> Sequence[click.Parameter]:
        return [
            click.Argument(["network"], type=Named()),
            click.Option(
                ["--topology"],
                type=Named(),
                required=True,
                metavar="TOPOLOGY",
                help="Use the devices of a topology document, or of a published cluster, such as "
                "p100:16.",
            ),
            click.Option(
                ["--batch"],
                type=click.IntRange(1, 2**31 - 1),
                metavar="N",
                help="Use N samples per step, for a published network (default: as published).",
            ),
            click.Option(
                ["--times"],
                type=click.Path(path_type=Path, dir_okay=False),
                metavar="FILE",
                help="Read measured times of operators from FILE, which --measure writes.",
            ),
            click.Option(
                ["--measure"],
                type=Duration(),
                metavar="TIME",
                help="Measure the times that --times lacks with JAX on this machine, for at most "
                "TIME, such as 10m.",
            ),
            click.Option(
                ["--for", "consumer"],
                type=click.Choice(get_args(Consumer)),
                help="Restrict the plan to what this framework can run: every operator on one mesh "
                "of all devices.",
            ),
            click.Option(
                ["--mesh"],
                type=Mesh(),
                metavar="SHAPE",
                help="With --for: use this mesh, such as 2x4 (default: one axis of all devices).",
            ),
            click.Option(
                ["--budget"],
                type=Duration(),
                metavar="TIME",
                help="Decide within TIME, such as 90s or 10m (default: 30s).",
            ),
            click.Option(
                ["--proposals"],
                type=click.IntRange(min=1),
                metavar="N",
                help="Try N changes instead of searching for a time; the same --seed then gives "
                "the same plan.",
            ),
            click.Option(
                ["--seed"],
                type=click.IntRange(0, 2**63 - 1),
                default=0,
                show_default=True,
                metavar="N",
                help="Start the random search from seed N.",
            ),
            click.Option(
                ["--processes"],
                type=click.IntRange(1, 1024),
                default=1,
                show_default=True,
                metavar="N",
                help="Search in N processes.",
            ),
            click.Option(
                ["--scheduler"],
                metavar="ADDRESS",
                help="Search on the workers of the dask scheduler at ADDRESS, such as "
                "tcp://127.0.0.1:8786.",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[Parallelism]:
        """NETWORK is a profile, an operators document, or the name of a published network, such as
        Inception-v3 or NMT.

        dltune simulates steps on the topology; the devices themselves are not needed. `dltune run`
        applies a plan made with --for: it starts one process per device and divides the model of a
        job that uses JAX, Keras with JAX, or PyTorch.
        """
        return _decide(**parameters)

    def enforce(self, section: Parallelism, run: Run) -> Enforcement:
        from dltune.systems.parallelism.enforce import EnforcedParallelism

        return EnforcedParallelism(section, run)

    def show(self, section: Parallelism, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        from dltune.systems.parallelism.show import shown

        return shown(section)

    def schedule(
        self, section: Parallelism, plan: Plan, beside: Sequence[msgspec.Struct]
    ) -> Schedule:
        from dltune.systems.parallelism.replay import replayed

        return replayed(section, beside)


PLANNER = ParallelismPlanner()


def _decide(
    network: Path | str,
    topology: Path | str,
    batch: int | None,
    times: Path | None,
    measure: float | None,
    consumer: Consumer | None,
    mesh: tuple[int, ...] | None,
    budget: float | None,
    proposals: int | None,
    seed: int,
    processes: int,
    scheduler: str | None,
) -> Decision[Parallelism]:
    if budget is not None and proposals is not None:
        raise UsageError(
            "--budget and --proposals cannot be combined: each limits the search",
            remedy="pass only one of them",
        )
    if mesh is not None and consumer is None:
        raise UsageError(
            "--mesh requires --for: without --for, each operator can use a different block of "
            "devices",
            remedy="add for example --for keras",
        )
    if measure is not None and times is None:
        raise UsageError(
            "--measure requires --times, the file for the measured times",
            remedy="add for example --times times.json",
        )
    from dltune.systems.parallelism import decide, emit, inputs, show

    found = inputs.network(network, batch)
    cluster = inputs.devices(topology)
    count = len(cluster.devices)
    shape: tuple[int, ...] = ()
    if consumer and count > 1:
        shape = mesh or (count,)
    if mesh is not None:
        decide.require_mesh(mesh, cluster)
    if times is not None:
        ways = decide.space(cluster, shape, consumer)
        found = _timed(found, cluster, ways, times, measure, runs=consumer is not None)
    decided = decide.decide(
        found,
        cluster,
        topology if isinstance(topology, str) else cluster.name,
        consumer,
        shape,
        decide.Effort(proposals, budget or decide.BUDGET, seed, processes, scheduler),
    )
    section = decided.section
    decide.require_faster(section)
    left = [decided.failure] if decided.failure else []
    if isinstance(topology, Path):  # published clusters have GPUs
        left += show.uncompared(section)
    return Decision(
        section,
        inputs.machine(found),
        choice=show.choice(section),
        remarks=[*inputs.remarks(found, cluster), *show.remarks(section), *left],
        shown=show.decision(section),
        summary={name: getattr(section, name) for name in parallelism.FIGURES},
        formats={
            "keras": lambda: emit.keras_file(section),
            "jax": lambda: emit.jax_file(section),
            "torch": lambda: emit.torch_file(section),
        },
    )


def _timed(
    found: Given, cluster: Topology, ways: Space, path: Path, seconds: float | None, *, runs: bool
) -> Given:
    from dltune.systems.parallelism import times

    if seconds is None:
        return replace(found, times=times.read(path, found, cluster, ways, runs=runs))

    def tell(text: str) -> None:
        click.echo(f"dltune: {text}", err=True)

    return replace(
        found, times=times.measured(path, found, cluster, ways, seconds, tell, runs=runs)
    )
