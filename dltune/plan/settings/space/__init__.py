"""The space of settings: those that dltune's core, its systems and other packages register."""

from __future__ import annotations

import difflib

from dltune.base.errors import UsageError
from dltune.extensions import extensions, load
from dltune.plan.settings.setting import Setting


def _registered() -> list[Setting]:
    targets = [target for extension in extensions() for target in extension.settings]
    return [load(target) for target in targets]


# likeliest gain first
SPACE: tuple[Setting, ...] = tuple(sorted(_registered(), key=lambda setting: setting.order))


def by_name(name: str) -> Setting:
    """Raises UsageError when there is no such setting; it names those that are close."""
    names = [setting.name for setting in SPACE]
    if name in names:
        return SPACE[names.index(name)]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names
    raise UsageError(f"there is no setting {name!r}", remedy=f"use {' or '.join(close)}")


def joins(setting: Setting) -> tuple[str, ...]:
    """Return the names of the settings that are tried together with this one."""
    others = (other.name for other in SPACE if setting.name in other.joined_by)
    return (*setting.joins, *others)
