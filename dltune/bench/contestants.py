"""The settings that are compared, by name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.frameworks.tensorflow import runtime
from dltune.job.protocol import Orders, uniform_line
from dltune.plan.plan import observers, require_machine
from dltune.plan.settings.choices import NOTHING, Applied
from dltune.plan.threads.fitted import fit
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan, Threads, Uniform
from dltune.schemas.settings import SettingsPlan

AS_FOUND, RECOMMENDED, ONE_CORE = "as-found", "recommended", "1core"
NAMED = (AS_FOUND, "default", RECOMMENDED, "uniform", "plan", ONE_CORE)
EXPLICIT = re.compile(r"([0-9]{1,4})x([0-9]{1,4})")
# TensorFlow starts as many threads as requested: more than this is a slip of the pen
MOST_THREADS = 1024


@dataclass(frozen=True)
class Setting:
    """One way to run the job.

    `uniform`: TensorFlow's own settings (None: as the script has them). `cpus`: the cores to
    which the job is confined, the same for all its ranks (None: not confined). `shared`: True if
    each of several ranks gets its own part of the cores. `orders`: obeyed by every execution of a
    step. `predicted`: seconds of a step in the plan, None where it has none. `applied`: settings
    around the ops.
    """

    name: str
    uniform: Uniform | None
    orders: Orders
    cpus: tuple[int, ...] | None = None
    predicted: float | None = None
    applied: Applied = NOTHING

    @property
    def shared(self) -> bool:
        return self.uniform is not None and self.cpus is None

    def lines(self) -> list[str]:
        """The orders as the plugin reads them."""
        return [*self.pools(), *self.orders.lines()]

    def pools(self) -> list[str]:
        """TensorFlow's own settings as the plugin reads them."""
        return [uniform_line(self.uniform.intra, self.uniform.inter)] if self.uniform else []


def usual(plan: Plan) -> tuple[str, ...]:
    """Names of the settings that are measured by default."""
    if plan.of(Threads):
        return ("default", RECOMMENDED, "uniform", "plan")
    if plan.of(SettingsPlan):
        return ("default", RECOMMENDED, AS_FOUND, "plan")
    return (AS_FOUND, "plan")  # the other sections leave threads as they are


def settings(
    names: Sequence[str], plan: Plan, machine: Machine, applied: Applied = NOTHING
) -> list[Setting]:
    """The settings of these names: those of NAMED, or AxB for intra-op A and inter-op B.

    `applied`: the plan's settings around the ops, under which only the plan itself runs.
    Raises UsageError when a name is unknown or there twice, when the plan lacks the part that a
    name refers to, and when the plan is for another machine.
    """
    require_machine(plan, machine)
    if not names:
        raise UsageError(
            "--against names no setting",
            remedy=f"choose from {', '.join(NAMED)} and AxB, such as 4x2",
        )
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--against names {name} twice", remedy="name each setting once")
    made = [_setting(name, plan, machine) for name in names]
    if not applied.choices:
        return made
    return [  # the plan predicts others for the graph as its own settings make it
        dataclasses.replace(setting, applied=applied)
        if setting.name == "plan"
        else dataclasses.replace(setting, predicted=None)
        for setting in made
    ]


def on_part(setting: Setting, plan: Plan, part: Machine) -> Setting:
    """The setting for a rank that has only `part` of the machine, as `dltune run` would cut it.

    Values that a script or a person's pair asks for stay; values that follow from the cores follow
    from the rank's. The plan's predictions are of one process on the whole machine: here they do
    not hold.
    """
    found = _setting(setting.name, plan, part)
    if setting.name == "uniform" and found.uniform:
        intra = min(found.uniform.intra, len(part.cores))
        found = dataclasses.replace(found, uniform=Uniform(intra, found.uniform.inter))
    return dataclasses.replace(found, predicted=None, applied=setting.applied)


def _setting(name: str, plan: Plan, machine: Machine) -> Setting:
    if name == "plan":
        return _planned(plan, machine)
    orders = _orders(plan)
    if name == AS_FOUND:
        return Setting(name, None, orders)
    if name == ONE_CORE:
        return Setting(name, Uniform(1, 1), orders, cpus=machine.cores[0].cpus)
    pair = _pair(name, plan, machine)
    return Setting(name, pair, orders, predicted=_predicted(pair, plan, machine))


def _orders(plan: Plan) -> Orders:
    """Return the orders that the steps obey under every setting."""
    recorded = any(one.records_ops for one in observers(plan, in_force=False).values())
    return Orders(1, targets=plan.signatures, barrier=True, events=recorded)


def _pair(name: str, plan: Plan, machine: Machine) -> Uniform:
    if name == "default":
        return runtime.default_threads(machine)
    if name == RECOMMENDED:
        return runtime.recommended_threads(machine)
    if name == "uniform":
        return _best_uniform(plan)
    if not (numbers := EXPLICIT.fullmatch(name)):
        raise UsageError(
            f"there is no setting {name!r}",
            remedy=f"choose from {', '.join(NAMED)} and AxB, such as 4x2 (intra-op 4, inter-op 2)",
        )
    pair = Uniform(*map(int, numbers.groups()))
    if not (1 <= pair.intra <= MOST_THREADS and 1 <= pair.inter <= MOST_THREADS):
        raise UsageError(
            f"setting {name} is out of range: each number must be 1 to {MOST_THREADS} threads",
            remedy="change it in --against",
        )
    return pair


def _planned(plan: Plan, machine: Machine) -> Setting:
    """The plan as `dltune run` enforces it, behind the barrier."""
    section = plan.of(Threads)
    if section is None:
        if not plan.of(SettingsPlan) and not observers(plan, in_force=True):
            raise UsageError(
                "the plan has no section that bench measures: threads, settings or transfers",
                remedy="create one: dltune plan PROFILE",
            )
        return Setting("plan", None, _orders(plan))
    fitted = fit(section, machine)
    placed = fitted.orders(1, plan.signatures)
    orders = dataclasses.replace(placed, barrier=True, events=_orders(plan).events)
    return Setting("plan", fitted.uniform, orders, predicted=section.chosen.seconds)


def _best_uniform(plan: Plan) -> Uniform:
    """Return the pair of the prediction `uniform AxB`. Raises UsageError if there is none."""
    section = plan.of(Threads)
    for prediction in section.predictions if section else ():
        if pair := prediction.uniform:
            return pair
    raise UsageError(
        "the plan has no prediction of a uniform setting",
        remedy="name the threads instead of uniform, such as 2x1",
    )


def _predicted(pair: Uniform, plan: Plan, machine: Machine) -> float | None:
    """The plan's prediction for that pair, by whichever name it has there."""
    section = plan.of(Threads)
    seconds = {p.setting: p.seconds for p in section.predictions} if section else {}
    names = {pair.setting: pair}
    names |= {
        "default": runtime.default_threads(machine),
        RECOMMENDED: runtime.recommended_threads(machine),
    }
    return next((seconds[n] for n, p in names.items() if p == pair and n in seconds), None)
