"""The usual case: a setting whose values are known by name, and mean the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dltune.errors import UsageError
from dltune.planners.settings.setting import Circumstances, Means


@dataclass(frozen=True)
class Ways:
    """What each value of the setting `name` does."""

    name: str
    ways: Mapping[str, Means]

    def values(self, _: Circumstances) -> tuple[str, ...]:
        return tuple(self.ways)

    def means(self, value: str, _: Circumstances) -> Means:
        return chosen(self.name, value, self.ways)


def chosen(name: str, value: str, ways: Mapping[str, Means]) -> Means:
    """Raises UsageError when there is no such value."""
    if value not in ways:
        raise UsageError(f"{name}={value}: there is no such value; it can be {' or '.join(ways)}")
    return ways[value]
