"""The planner of threads, as the registry knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dltune.documents.machine import Machine
from dltune.documents.plan import Plan
from dltune.documents.sections import threads
from dltune.documents.sections.threads import Threads
from dltune.errors import UsageError
from dltune.planners.enforcement import Enforcement, Run
from dltune.planners.planner import Decision, Planner
from dltune.planners.shown import Part, Shown
from dltune.planners.threads import emit

if TYPE_CHECKING:
    from dltune.documents.profile import Profile
    from dltune.model.prediction import Model
    from dltune.planners.threads.decide import Decision as Strategies
    from dltune.workload.calibration import Calibration
    from dltune.workload.workload import Workload


class ThreadsPlanner(Planner[Threads]):
    name = "threads"
    summary = "Threads, placement and co-runs of each op."
    section = Threads
    after = ("settings", "allreduce")
    formats = emit.FORMATS

    def faults(self, section: Threads, plan: Plan) -> Iterator[str]:
        return threads.faults(section, plan.cores, plan.signatures)

    def parameters(self) -> Sequence[click.Parameter]:
        from dltune.planners.threads.decide import STRATEGIES

        path = click.Path(path_type=Path)
        return [
            click.Argument(["profile"], type=path),
            click.Option(
                ["--strategy"], type=click.Choice(STRATEGIES), default="auto", show_default=True
            ),
            click.Option(
                ["--machine"],
                metavar="FILE|NAME",
                help="Plan for this machine, such as knl-7250.",
            ),
            click.Option(
                ["--cores"], metavar="N|LIST", help="Plan for N cores, or for these (0-3,8)."
            ),
            click.Option(
                ["--model"],
                type=path,
                metavar="FILE",
                help="Take op times from this regression model (dltune model), not from the ops' "
                "own curves.",
            ),
            click.Option(
                ["--bitwise"], is_flag=True, help="Keep every op's thread count, so results stay."
            ),
            click.Option(
                ["--explain"],
                metavar="OP",
                help="Why an op (key, part of it, or type) got its plan.",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[Threads]:
        """Simulates TensorFlow's own settings and the strategies on the profile's graph, and takes
        the fastest."""
        return _decide(**parameters)

    def names_ops(self, section: Threads) -> bool:
        return bool(section.ops)

    def places_threads(self, section: Threads) -> bool:
        return True

    def enforce(self, section: Threads, run: Run) -> Enforcement:
        from dltune.planners.threads.enforce import EnforcedThreads

        return EnforcedThreads(section, run)

    def apply(self, section: Threads, plan: Plan, machine: Machine) -> Callable[[], None]:
        from dltune.job.orders import machine_lines
        from dltune.planners.threads.fitted import fit
        from dltune.tensorflow.apply import obey

        if plan.framework and plan.framework.name != "tensorflow":
            raise UsageError(
                f"the plan is for {plan.framework.title}; from inside a script plans are enforced "
                "on TensorFlow alone",
                remedy="dltune run --plan PLAN -- CMD",
            )
        fitted = fit(section, machine)
        orders = fitted.orders(1, plan.signatures)
        return lambda: obey([*machine_lines(machine, fitted.uniform), *orders.lines()])

    def show(self, section: Threads, plan: Plan, beside: Sequence[msgspec.Struct]) -> Shown:
        from dltune.planners.threads.show import shown

        return shown(section, beside)


PLANNER = ThreadsPlanner()


def _decide(
    profile: Path,
    strategy: str,
    machine: str | None,
    cores: str | None,
    model: Path | None,
    bitwise: bool,
    explain: str | None,
) -> Decision[Threads]:
    from dltune.documents import profile as documents
    from dltune.machine.known import find
    from dltune.planners.threads.decide import choose
    from dltune.planners.threads.explain import explain as explained
    from dltune.planners.threads.show import predictions
    from dltune.planners.threads.target import restricted
    from dltune.workload.calibration import calibrated
    from dltune.workload.transfer import transferred

    if model and machine:
        raise UsageError(
            "a regression model predicts one machine only, not --machine", remedy="leave one out"
        )
    found = documents.load(profile)
    trained, remarks = _model(model, found, profile) if model else (None, ())
    there = restricted((find(machine) if machine else None) or found.machine, cores)
    made, calibration = calibrated(found, trained)
    made = transferred(made, there)
    strategies = choose(made, strategy, bitwise=bitwise)
    section = strategies.threads(made)
    best = strategies.best_uniform.uniform
    return Decision(
        section,
        there,
        found,
        choice=strategies.chosen.setting,
        remarks=(*remarks, *_remarks(found, made, calibration, strategies)),
        shown=Shown([Part("strategies", "", [predictions(section)])]),
        explanation=("", *explained(made, strategies, explain)) if explain else (),
        summary={
            "machine": there.name,
            "cores": len(there.cores),
            "strategy": section.strategy,
            "uniform": section.uniform,
            "ops": len(section.ops),
            "overhead": calibration.overhead,
            "scale": calibration.scale,
            "predictions": section.predictions,
        },
        formats={
            name: partial(emit.emit, name, found.framework.name, best, there)
            for name in emit.FORMATS
        },
    )


def _model(path: Path, profile: Profile, name: Path) -> tuple[Model, Sequence[str]]:
    """The regression model of a file, for this profile's ops, and what it does not cover."""
    from dltune.model.regression.file import load, require_fits
    from dltune.model.regression.train import Regression

    header, trained = load(path)
    require_fits(header, profile, path, name)
    model = Regression.on(trained, profile)
    if not model.predictions:
        samples = ", ".join(f"{threads} {placement}" for threads, placement in header.samples)
        raise UsageError(
            f"no op of {name} has what {path} predicts from: times at {samples}"
            + (f" with {', '.join(header.events)}" if header.events else ""),
            remedy="profile again as for the model's training",
        )
    told = (
        f"op times are from {path} ({header.regressor}, trained on {header.ops} ops), for "
        f"{len(model.predictions)} ops; {len(model.missing)} lack a sample and keep their own"
    )
    return model, [told]


def _remarks(
    profile: Profile, workload: Workload, calibration: Calibration, strategies: Strategies
) -> Sequence[str]:
    """What the predictions rest on."""
    own = profile.settings
    basis: list[str] = []
    if calibration.span:
        basis.append(
            f"tied to the job's own run (intra-op {own.intra}, inter-op {own.inter}: "
            f"{calibration.span * 1e3:.1f} ms from first op to last) by "
            f"{calibration.overhead * 1e6:.2f} us an op and a factor of "
            f"{calibration.scale:.3f} on op times"
        )
    if calibration.doubtful:
        basis.append(
            "ops took very different times in the job and one by one, as when something else runs "
            "on the machine: these predictions are doubtful, profile again when it is quiet"
        )
    return [*basis, *workload.remarks, *strategies.remarks]
