"""Planner of settings outside the ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dltune.base.errors import UsageError
from dltune.plan.planner import Enforcement, Planner, Run
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan
from dltune.schemas.settings import SettingsPlan
from dltune.views import View


class SettingsPlanner(Planner[SettingsPlan]):
    """`dltune tune` decides this section, by measuring."""

    name = "settings"
    summary = "Choose settings outside the ops: use `dltune tune`."
    example = "dltune tune -o plan.json -- python train.py"
    section = SettingsPlan
    tables = ("effects",)

    def changes_graphs(self, section: SettingsPlan) -> bool:
        return bool(section.chosen)

    def difference(
        self, before: SettingsPlan | None, after: SettingsPlan | None, *, graphs: bool
    ) -> str:
        from dltune.plan.settings.space import by_name

        was = set(before.chosen) if before else set()
        now = set(after.chosen) if after else set()
        words = [
            f"with {choice}" if choice in now else f"without {choice}"
            for choice in sorted(was ^ now)
            if by_name(choice.setting).changes_graph or not graphs
        ]
        return " and ".join(words)

    def enforce(self, section: SettingsPlan, run: Run) -> Enforcement:
        from dltune.plan.plan import places_threads
        from dltune.plan.settings.choices import applied
        from dltune.plan.settings.enforce import EnforcedSettings

        made = applied(
            section,
            run.machine,
            run.command,
            run.environment,
            partial=run.partial,
            placed=places_threads(run.plan),
        )
        return EnforcedSettings(made, run)

    def apply(self, section: SettingsPlan, plan: Plan, machine: Machine) -> Callable[[], None]:
        if not section.chosen:
            return lambda: None
        names = ", ".join(choice.setting for choice in section.chosen)
        raise UsageError(
            f"the plan has settings ({names}) that must be set before the job starts",
            remedy="start the job with `dltune run --plan`",
        )

    def show(self, section: SettingsPlan, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        from dltune.plan.settings.show import shown

        return shown(section)


PLANNER = SettingsPlanner()
