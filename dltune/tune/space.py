"""Settings to try on this job, in order, and the settings not to try, with reasons."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.frameworks.tensorflow import runtime
from dltune.plan.settings.applied import set_by_user
from dltune.plan.settings.setting import Circumstances, Setting
from dltune.plan.settings.space import SPACE, by_name, joins
from dltune.schemas.settings import Choice, Kind, Untried
from dltune.tune.candidate import KINDS, Candidate, Option

_THREADS = "threads"


@dataclass(frozen=True)
class Offer:
    """`options` in the order in which they are tried; `recommended`: TensorFlow's recommendation of
    threads as a candidate (None: it is not among them)."""

    options: tuple[Option, ...]
    untried: tuple[Untried, ...]
    recommended: Candidate | None


def offer(
    here: Circumstances,
    *,
    allow: Kind,
    only: Collection[str] = (),
    without: Collection[str] = (),
    first: Sequence[str] = (),
    same_graph: bool = False,
) -> Offer:
    """`allow`: the furthest kind of setting to try; `only` (empty: all) and `without` name
    settings, `first` those that are tried before the others, in this order. `same_graph`: nothing
    is tried that changes a step's graph.

    Raises UsageError when a name is none of a setting, and when nothing is left to try.
    """
    for name in (*only, *without):
        by_name(name)
    options: list[Option] = []
    untried: list[Untried] = []
    for setting in sorted(SPACE, key=lambda s: first.index(s.name) if s.name in first else 1 << 30):
        if why := _unfit(setting, here, allow, only, without, same_graph):
            untried.append(Untried(setting.name, None, why))
            continue
        untried += [
            Untried(setting.name, value, why) for value, why in setting.untried(here).items()
        ]
        default = setting.default(here)
        for value in setting.values(here):
            # the script can set a variable: the job's value is known once it runs
            if value == default and not setting.means(value, here).environment:
                untried.append(Untried(setting.name, value, "it is the default"))
            else:
                choice, acts = Choice(setting.name, value), bool(setting.means(value, here).hooks)
                together = frozenset(joins(setting))
                framework = setting.framework or setting.framework_of(value)
                options.append(Option(choice, setting.kind, together, acts, framework))
    if not options:
        reasons = "".join(f"\n  {u.setting}: {u.why}" for u in untried)
        raise UsageError(
            f"no setting can be tried on this job{reasons}",
            remedy="choose other settings with --only, or allow more with --allow",
        )
    return Offer(tuple(options), tuple(untried), _recommended(here, options))


def _recommended(here: Circumstances, options: Sequence[Option]) -> Candidate | None:
    pair = runtime.recommended_threads(here.machine)
    choice = Choice(_THREADS, f"{pair.intra}x{pair.inter}")
    return (choice,) if any(option.choice == choice for option in options) else None


def _unfit(
    setting: Setting,
    here: Circumstances,
    allow: Kind,
    only: Collection[str],
    without: Collection[str],
    same_graph: bool,
) -> str | None:
    """Why nothing of a setting is tried; None: it is."""
    if (only and setting.name not in only) or setting.name in without:
        return "excluded by --only or --without"
    if why := setting.unfit(here):
        return why
    if same_graph and setting.changes_graph:
        return "it changes the step's graph, and the plan sets threads for ops of that graph"
    if users := set_by_user(setting, here):
        return f"already set ({users})"
    if KINDS.index(setting.kind) > KINDS.index(allow):
        return f"it is {setting.kind}; --allow {setting.kind} would try it"
    return None
