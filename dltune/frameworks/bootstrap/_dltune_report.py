"""What a hook inside the job's Python has done, told to dltune."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

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
        self.did = "the job uses nothing that this setting changes"
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

    def harmless(self, act: Callable[..., None], what: str) -> Callable[..., None]:
        """`act`, where it raises, leaves `what` alone: no hook may break a job."""

        def kept(*given: Any) -> None:
            try:
                act(*given)
            except Exception as error:
                self.left(what, f"the setting failed: {type(error).__name__}: {error}")

        return kept

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
