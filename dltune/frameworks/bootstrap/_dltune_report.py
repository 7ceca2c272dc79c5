"""Inside the job's Python: the report of a setting's hooks to dltune."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

Tell = Callable[[dict[str, Any]], Any]
# modules of the job, and the function to call after the import of each
Hooks = Iterator[tuple[str, Callable[[ModuleType], None]]]
# seconds; if dltune took longer to receive a report, no more follow, so that the job does not wait
_PATIENCE = 5.0
_NAMES_SHOWN = 3


class Report:
    """The effects of one setting so far, sent when they grow.

    `did`: a sentence with `{count}` in it; `steps`: as in `messages.Setting`.
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
        """Report an effect on `count` more things."""
        self._count += count
        self._send()

    def left(self, name: str, why: str) -> None:
        """Report that `name` stays unchanged; names with the same reason are reported together."""
        names = self._left.setdefault(why, [])
        if name not in names:
            names.append(name)
            self._send()

    def harmless(self, act: Callable[..., None], what: str) -> Callable[..., None]:
        """Return `act` as a function that reports an error instead of breaking the job."""

        def kept(*given: Any) -> None:
            try:
                act(*given)
            except Exception as error:
                self.left(what, f"the setting failed: {type(error).__name__}: {error}")

        return kept

    def first(self, _: ModuleType) -> None:
        """Report that nothing was changed so far, unless there was a report already."""
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
