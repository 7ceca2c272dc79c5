"""Planner of threads: its options, its decision, and the fit of a plan to a machine.

`PLANNER` is the planner that the registry loads. `restricted` selects the machine that is planned
for. `fit` puts a plan on the cores that one process of a job may use, and `Fitted.orders` turns it
into orders for this process. `emit` writes settings for a job that runs without dltune.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dltune.base.errors import UsageError
from dltune.frameworks.capabilities import FRAMEWORKS, Framework, framework
from dltune.plan.planner import Decision, Enforcement, Planner, Run
from dltune.plan.threads.fitted import fit
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan, Threads, Uniform, thread_faults
from dltune.system.kernel_files import format_cpulist, parse_cpulist
from dltune.system.topology import cores_for
from dltune.views import Section, View

if TYPE_CHECKING:
    from dltune.plan.threads.decide import Selection
    from dltune.schemas.profile import Profile
    from dltune.simulate.op_time import Model
    from dltune.simulate.workload import Calibration, Workload


# What a plain job can use without dltune: the best uniform setting, and the CPUs to run on


def _templates(known: Framework) -> dict[str, str]:
    """Return templates by format; none if jobs of this framework cannot set their threads."""
    if not known.thread_variables:
        return {}
    exports = "".join(f"export {name}={{{number}}}\n" for name, number in known.thread_variables)
    values = "".join(f'  {name}: "{{{number}}}"\n' for name, number in known.thread_variables)
    options = "".join(f"  {name}: {{{number}}}\n" for name, number in known.thread_options)
    kind, code = known.thread_code
    return {
        "env": f"{exports}# then start the job on these CPUs: taskset -c {{cpus}} python ...\n",
        kind: code,
        "yaml": f'{known.name}:\n{options}environment:\n{values}launcher:\n  cpus: "{{cpus}}"\n',
    }


FORMATS = tuple(dict.fromkeys(kind for known in FRAMEWORKS.values() for kind in _templates(known)))


def emit(kind: str, name: str, setting: Uniform, machine: Machine) -> str:
    """Return the setting in one of FORMATS, for a job of the framework `name`.

    Raises UsageError for a format that is another framework's.
    """
    known = framework(name)
    templates = _templates(known)
    if kind not in templates:
        raise UsageError(
            f"--emit {kind} does not apply to a job of {known.title}",
            remedy=f"use --emit {' or '.join(templates)}" if templates else "leave out --emit",
        )
    cpus = sorted(core.cpus[0] for core in machine.cores)
    return templates[kind].format(
        intra=setting.intra,
        inter=setting.inter,
        cpus=format_cpulist(cpus),
        numbers=", ".join(map(str, cpus)),
    )


class ThreadsPlanner(Planner[Threads]):
    name = "threads"
    summary = "Choose threads and cores for each op, and which ops run at the same time."
    example = "dltune plan profile.json"
    section = Threads
    after = ("settings",)
    tables = ("ops", "predictions")
    formats = FORMATS

    def faults(self, section: Threads, plan: Plan) -> Iterator[str]:
        return thread_faults(section, plan.cores, plan.signatures)

    def parameters(self) -> Sequence[click.Parameter]:
        from dltune.plan.threads.decide import CHOICES

        path = click.Path(path_type=Path)
        return [
            click.Argument(["profile"], type=path),
            click.Option(
                ["--strategy"],
                type=click.Choice(CHOICES),
                default="auto",
                show_default=True,
                metavar="STRATEGY",
                help="Plan with STRATEGY from the list above; auto plans with the fastest.",
            ),
            click.Option(
                ["--machine"],
                metavar="FILE|NAME",
                help="Plan for another machine: a machine document, or a known name such as "
                "knl-7250.  [default: the profiled machine]",
            ),
            click.Option(
                ["--cores"],
                metavar="N|LIST",
                help="Plan for N cores, or for the cores of LIST, such as 0-3,8.  [default: as "
                "many as the CPU quota allows]",
            ),
            click.Option(
                ["--model"],
                type=path,
                metavar="FILE",
                help="Predict op times with this model of `dltune model train`.  [default: with "
                "the measured times of each op]",
            ),
            click.Option(
                ["--bitwise"],
                is_flag=True,
                help="Keep the thread count of every op, so that results stay bit for bit.",
            ),
            click.Option(
                ["--explain"],
                metavar="OP",
                help="Explain the plan of the ops that match OP: a key, part of a key, or op type.",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[Threads]:
        """dltune simulates the framework's settings and several strategies on the profiled graph,
        and chooses the fastest.

        \b
        Settings and strategies (in brackets: strategies of the paper):
          default      the framework's defaults
          recommended  intra-op: physical cores; inter-op: sockets
          uniform AxB  all ops alike: intra-op A, inter-op B
          per-op       each op gets its fastest thread count [1]
          per-type     all ops of a type get the same thread count [1+2]
          +co-run      ops also run at the same time, on separate cores [3]
          +smt         small ops also use the second hardware threads [4]
          +cap=N       no op gets more than N threads
        --strategy takes auto, uniform, per-op or per-type; per-op and
        per-type can be followed by +co-run or +co-run+smt.
        """
        return _decide(**parameters)

    def names_ops(self, section: Threads) -> bool:
        return bool(section.ops)

    def places_threads(self, section: Threads) -> bool:
        return True

    def enforce(self, section: Threads, run: Run) -> Enforcement:
        from dltune.plan.threads.enforce import EnforcedThreads

        return EnforcedThreads(section, run)

    def apply(self, section: Threads, plan: Plan, machine: Machine) -> Callable[[], None]:
        from dltune.frameworks.tensorflow.runtime import obey
        from dltune.job.protocol import machine_lines

        if plan.framework and not plan.framework.capabilities.applies_in_process:
            raise UsageError(
                f"the plan is for {plan.framework.title}, but dltune.apply can set threads of ops "
                "only in TensorFlow",
                remedy="start the job with dltune run --plan PLAN -- CMD",
            )
        fitted = fit(section, machine)
        orders = fitted.orders(1, plan.signatures)
        return lambda: obey([*machine_lines(machine, fitted.uniform), *orders.lines()])

    def show(self, section: Threads, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        from dltune.plan.threads.show import shown

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
    from dltune.plan.threads import decide
    from dltune.plan.threads.show import predictions
    from dltune.schemas import profile as documents
    from dltune.simulate.machine_transfer import transferred
    from dltune.simulate.workload import calibrated
    from dltune.system.topology import builtin_machine

    if model and machine:
        raise UsageError(
            "--model and --machine cannot be combined: a regression model is valid for one machine",
            remedy="leave out --model or --machine",
        )
    profiled = documents.load(profile)
    trained, remarks = _model(model, profiled, profile) if model else (None, ())
    target = restricted(builtin_machine(machine) if machine else profiled.machine, cores)
    workload, calibration = calibrated(profiled, trained)
    workload = transferred(workload, target)
    selection = decide.choose(workload, strategy, bitwise=bitwise)
    section = selection.threads(workload)
    best = selection.best_uniform.uniform
    return Decision(
        section,
        target,
        profiled,
        choice=selection.chosen.setting,
        remarks=(*remarks, *_remarks(profiled, workload, calibration, selection)),
        shown=View([Section("strategies", "", [predictions(section)])]),
        explanation=("", *decide.explain(workload, selection, explain)) if explain else (),
        summary={
            "machine": target.name,
            "cores": len(target.cores),
            "strategy": section.strategy,
            "uniform": section.uniform,
            "ops": len(section.ops),
            "overhead": calibration.overhead,
            "scale": calibration.scale,
            "predictions": section.predictions,
        },
        formats={
            name: partial(emit, name, profiled.framework.name, best, target) for name in FORMATS
        },
    )


def _model(path: Path, profile: Profile, name: Path) -> tuple[Model, Sequence[str]]:
    """The regression model of a file, for this profile's ops, and what it does not cover."""
    from dltune.simulate.regression import Regression
    from dltune.simulate.regression_file import load, require_fits

    header, trained = load(path)
    require_fits(header, profile, path, name)
    model = Regression.on(trained, profile)
    if not model.predictions:
        samples = ", ".join(f"{threads} {placement}" for threads, placement in header.samples)
        raise UsageError(
            f"no op of {name} has the measurements that {path} needs: times at {samples}"
            + (f" with {', '.join(header.events)}" if header.events else ""),
            remedy="profile the job again with the options of the training profiles",
        )
    remark = (
        f"note: {path} ({header.regressor}, trained on {header.ops} ops) predicts the times of "
        f"{len(model.predictions)} ops; {len(model.missing)} ops lack a sample and keep their "
        "measured times"
    )
    return model, [remark]


def _remarks(
    profile: Profile, workload: Workload, calibration: Calibration, selection: Selection
) -> Sequence[str]:
    """Return the basis of the predictions, and what limits them."""
    from dltune.simulate.workload import is_oversubscribed

    own = profile.settings
    basis: list[str] = []
    if calibration.span:
        basis.append(
            f"note: predictions are calibrated to the job's run (intra-op {own.intra}, inter-op "
            f"{own.inter}; {calibration.span * 1e3:.1f} ms from first to last op): "
            f"{calibration.overhead * 1e6:.2f} us of overhead per op, op times scaled by "
            f"{calibration.scale:.3f}"
        )
    elif is_oversubscribed(profile):
        basis.append(
            f"note: predictions are not calibrated: in the profile, {own.intra} threads for an op "
            f"shared {len(profile.machine.cores)} cores and waited for one another"
        )
    if calibration.doubtful:
        basis.append(
            "warning: the predictions are not reliable: op times in the job differ widely from "
            "those measured one by one, as if other programs used the CPUs. Profile again while "
            "the machine is idle"
        )
    return [*basis, *workload.remarks, *selection.remarks]


def restricted(machine: Machine, cores: str | None) -> Machine:
    """Return the machine that is planned for: all its cores, some of them, or what its quota
    leaves. `cores` names the part: a count ("4"), or core indices ("0-3,8").

    A count takes whole tiles first. None takes all, or, under a cgroup quota of less, as many as
    the quota can keep busy. Raises UsageError when `cores` names none, or cores that are not there.
    """
    everything = len(machine.cores)
    if cores is None:
        if machine.quota is None or machine.quota >= everything:
            return machine
        return machine.of_cores(cores_for(machine, math.ceil(machine.quota), "shared"))
    if cores.isdecimal():
        count = int(cores)
        if not 1 <= count <= everything:
            raise UsageError(
                f"--cores {cores}: {machine.name} offers {everything} cores",
                remedy=f"use a count from 1 to {everything}, or core indices such as 0-1,4",
            )
        return machine.of_cores(cores_for(machine, count, "shared"))
    try:
        chosen = sorted(parse_cpulist(cores))
    except ValueError:
        chosen = []
    if not chosen:
        raise UsageError(
            f"--cores {cores!r} is neither a count nor a list of core indices",
            remedy="use a count such as 4, or core indices such as 0-3,8",
        )
    if missing := [core for core in chosen if not 0 <= core < everything]:
        raise UsageError(
            f"--cores {cores}: core {format_cpulist(missing)} does not exist or is not allowed",
            remedy=f"use cores from 0 to {everything - 1} of {machine.name}",
        )
    return machine.of_cores(chosen)
