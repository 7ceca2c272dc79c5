"""Inside the job's Python: the settings that are set there, by hooks on what the job imports.

Only the standard library is used at import. No hook may break a job: what does not fit is left
alone, and told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

# beside this file
import _dltune_batch_norm
import _dltune_input
import _dltune_keras

Tell = Callable[[dict[str, Any]], Any]
# modules of the job, and what is done once each has been imported
Hooks = Iterator[tuple[str, Callable[[ModuleType], None]]]
# seconds; who took longer to hear is not told again, so that the job does not wait for him
_PATIENCE = 5.0
_NAMES_SHOWN = 3


class Report:
    """What one hook has done so far; told when it grows.

    `did` is the sentence that is told, with `{count}` in it; `steps` what `messages.Setting` says.
    """

    def __init__(self, setting: str, value: str, tell: Tell) -> None:
        self.setting = setting
        self.value = value
        self.did = "nothing in the job that this acts on was met"
        self.steps = 1
        self._count = 0
        self._left: dict[str, list[str]] = {}
        self._tell: Tell | None = tell
        self._told = False

    def acted(self, count: int = 1) -> None:
        """On `count` things more."""
        self._count += count
        self._send()

    def left(self, name: str, why: str) -> None:
        """`name` was left alone; things with the same reason are told together."""
        names = self._left.setdefault(why, [])
        if name not in names:
            names.append(name)
            self._send()

    def first(self, _: ModuleType) -> None:
        """Tell that there was nothing to act on so far, unless something was told already."""
        if not self._told:
            self._send()

    def _send(self) -> None:
        if self._tell is None:
            return
        self._told = True
        began = time.monotonic()
        self._tell(
            {
                "type": "setting",
                "pid": os.getpid(),
                "setting": self.setting,
                "value": self.value,
                "did": self.did.format(count=self._count),
                "count": self._count,
                "left": [f"{_shown(names)}: {why}" for why, names in self._left.items()],
                "steps": self.steps,
            }
        )
        if time.monotonic() - began > _PATIENCE:
            self._tell = None


def _shown(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


_HOOKS: dict[str, Callable[[Report], Hooks]] = {
    "batch_norm": _dltune_batch_norm.hooks,
    "jit_compile": _dltune_keras.jit_compile,
    "steps_per_execution": _dltune_keras.steps_per_execution,
    "precision": _dltune_keras.precision,
    "input_threads": _dltune_input.threads,
    "input_prefetch": _dltune_input.prefetch,
    "input_order": _dltune_input.order,
}


def hooks(settings: Mapping[str, str], tell: Tell) -> Hooks:
    """What is to be done after which module's import, for `settings`: hooks' names and values."""
    reports = [Report(name, value, tell) for name, value in settings.items()]
    for report in reports:
        if report.setting not in _HOOKS:
            report.left(report.setting, "the bootstrap in the job's Python knows no such setting")
            continue
        for module, hook in _HOOKS[report.setting](report):
            yield module, _kept_harmless(hook, report)
    for report in reports:
        yield "tensorflow", report.first


def _kept_harmless(
    hook: Callable[[ModuleType], None], report: Report
) -> Callable[[ModuleType], None]:
    def kept(module: ModuleType) -> None:
        try:
            hook(module)
        except Exception as error:
            report.left(module.__name__, f"cannot be set here: {type(error).__name__}: {error}")

    return kept
