"""Effects of a set of choices on one job: its environment, its command, its first orders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dltune.base.errors import UsageError
from dltune.plan.settings.setting import Circumstances, Means, Setting, filled
from dltune.plan.settings.space import SPACE, by_name
from dltune.schemas.machine import Machine
from dltune.schemas.settings import Choice, SettingsPlan
from dltune.system.memory import preloads

# variables that hold a list, and the separator of its parts
_SEPARATORS = {"GLIBC_TUNABLES": ":", "TF_XLA_FLAGS": " "}


def means_of(choices: Iterable[Choice], here: Circumstances) -> Means:
    """Return the means of all these choices together.

    Raises UsageError for a setting or a value that does not exist, or not here, for a setting that
    is named twice, and for two that cannot be combined.
    """
    merged = Means()
    chosen: dict[str, str] = {}
    for choice in sorted(choices):
        setting = by_name(choice.setting)
        if choice.setting in chosen:
            raise UsageError(
                f"{choice.setting} cannot be {chosen[choice.setting]} and {choice.value}",
                remedy="choose one of them",
            )
        chosen[choice.setting] = choice.value
        merged = _merged(merged, setting.means(choice.value, here), choice)
    return merged


def set_by_user(setting: Setting, here: Circumstances) -> str | None:
    """Return the user's own setting, which stays as it is; None if there is none."""
    if told := setting.users(here):
        return told
    for value in setting.values(here) if setting.unfit(here) is None else ():
        means = setting.means(value, here)
        for name in means.environment:
            if name in here.environment:
                return f"{name}={here.environment[name]} in the environment"
        for name, parts in means.joined.items():
            there = {_name(part): part for part in _parts(name, here.environment)}
            for part in parts:
                if _name(part) in there:
                    return f"{there[_name(part)]} in {name}"
    return None


def as_it_is(choice: Choice, here: Circumstances, found: Mapping[str, str]) -> bool:
    """Return True if a job already has this choice, as its variables once it has imported
    TensorFlow show: scripts set some themselves."""
    setting = by_name(choice.setting)
    means = setting.means(choice.value, here)
    names = means.environment
    if not names or replace(means, environment={}) != Means():
        return False
    unset = not any(name in found for name in names)
    by_default = unset and choice.value == setting.default(here)
    return by_default or all(found.get(name) == value for name, value in names.items())


@dataclass(frozen=True)
class Applied:
    """`choices` as they are applied to one job, by `means`; `left`: choices not applied, and why,
    a sentence each."""

    choices: tuple[Choice, ...]
    means: Means
    left: tuple[str, ...] = ()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to set in addition to `base`, whose lists are kept and added to."""
        chosen = dict(self.means.environment)
        for name, parts in self.means.joined.items():
            chosen[name] = _SEPARATORS[name].join([*_parts(name, base), *parts])
        if self.means.preload:
            ours = [str(library) for library in self.means.preload]
            chosen["LD_PRELOAD"] = ":".join(dict.fromkeys([*ours, *preloads(base)]))
        return chosen

    def command(self, given: Sequence[str]) -> tuple[str, ...]:
        """Return the command to start. Raises UsageError as `setting.ranks`."""
        whole = filled(given, self.means.ranks)
        return (*whole[:1], *self.means.flags, *whole[1:])


NOTHING = Applied((), Means())


def applied(
    section: SettingsPlan | None,
    machine: Machine,
    job: Sequence[str],
    environment: Mapping[str, str],
    *,
    partial: bool = False,
    placed: bool = False,
) -> Applied:
    """Return the settings of a plan on a job with this command and this environment.

    What the user has set himself stays, unless the section overrides it. With `placed`, threads and
    CPUs are left to another section of the plan, or to whoever starts the job.
    Raises UsageError as `means_of`; with `partial`, choices that cannot be applied here are left.
    """
    if section is None:
        return NOTHING
    here = Circumstances(machine, tuple(job) or section.command, environment)
    kept, left = [], []
    for choice in section.chosen:
        try:
            setting = by_name(choice.setting)
            means = setting.means(choice.value, here)
        except UsageError as error:
            if not partial:
                raise
            left.append(str(error))
            continue
        if not section.overrides and (users := set_by_user(setting, here)):
            left.append(f"{choice}: already set ({users})")
        elif placed and replace(means, uniform=None, cpus=None) == Means():
            left.append(
                f"{choice}: another section of the plan or the launcher sets threads and CPUs"
            )
        else:
            kept.append(choice)
    return Applied(tuple(kept), means_of(kept, here), tuple(left))


def variables(here: Circumstances) -> tuple[str, ...]:
    """Return names of the variables that any setting of the space can set here."""
    names = {
        name
        for setting in SPACE
        if setting.unfit(here) is None
        for value in setting.values(here)
        for name in setting.means(value, here).environment
    }
    return tuple(sorted(names))


def _merged(one: Means, other: Means, choice: Choice) -> Means:
    """Return both together. Raises UsageError if they contradict each other."""

    def conflict(what: str) -> UsageError:
        return UsageError(
            f"{choice} conflicts with another setting: both set {what}",
            remedy="choose one of them",
        )

    def either(name: str) -> Any:
        a, b = getattr(one, name), getattr(other, name)
        if a and b and a != b:
            raise conflict(name)
        return a or b

    def union(name: str) -> dict[str, str]:
        a, b = getattr(one, name), getattr(other, name)
        for key in a.keys() & b.keys():
            if a[key] != b[key]:
                raise conflict(key)
        return {**a, **b}

    joined = {name: list(parts) for name, parts in one.joined.items()}
    for name, parts in other.joined.items():
        there = {_name(part): part for part in joined.setdefault(name, [])}
        for part in parts:
            if there.setdefault(_name(part), part) != part:
                raise conflict(f"{_name(part)} in {name}")
        joined[name] = list(there.values())
    if (one.cpus and other.shared) or (one.shared and other.cpus):
        raise conflict("which CPUs the job may use")
    return Means(
        environment=union("environment"),
        joined={name: tuple(parts) for name, parts in joined.items()},
        preload=tuple(dict.fromkeys([*one.preload, *other.preload])),
        uniform=either("uniform"),
        cpus=either("cpus"),
        shared=one.shared or other.shared,
        ranks=either("ranks"),
        flags=tuple(dict.fromkeys([*one.flags, *other.flags])),
        hooks=union("hooks"),
    )


def _parts(name: str, environment: Mapping[str, str]) -> list[str]:
    return [part for part in environment.get(name, "").split(_SEPARATORS[name]) if part]


def _name(part: str) -> str:
    return part.partition("=")[0]
