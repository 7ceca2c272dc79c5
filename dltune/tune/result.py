"""Result of a search as a section of a plan, and the state of the search in a file next to it.

`section` presents the result. `State` writes the search's state after each trial, and `taken_up`
reads it, so that an interrupted search can continue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dltune import __version__
from dltune.base import documents
from dltune.base.documents import Output
from dltune.base.errors import UsageError
from dltune.frameworks.capabilities import framework
from dltune.plan.settings.setting import Circumstances
from dltune.plan.settings.show import in_words
from dltune.schemas import bench
from dltune.schemas.bench import Trial, Tune
from dltune.schemas.profile import Framework
from dltune.schemas.settings import Choice, Effect, Kind, Measured, SettingsPlan, Untried
from dltune.tune.candidates import AS_GIVEN, Candidate, Offer, added, furthest, idle
from dltune.tune.search import FINAL_CONFIDENCE, Final, Search, inverse, measured, verdict_of

UNCONFIRMED = "the final rounds did not confirm the gain, so the job stays as found"


def section(
    search: Search,
    *,
    command: Sequence[str],
    untried: Sequence[Untried],
    seconds: float,
    partial: str | None,
) -> SettingsPlan:
    """Return the result of a search, in the form of a plan's section.

    `untried`: settings ruled out before the search began; `partial`: why it ended early.
    """
    kinds = {option.choice: option.kind for option in search.options}
    effects = [_effect(trial, kinds) for trial in _last(search.trials)]
    final = search.final
    if final and not final.held:
        effects.append(_unconfirmed(search, final, kinds))
    return SettingsPlan(
        command=tuple(command),
        chosen=search.chosen,
        kind=furthest(kinds[choice] for choice in search.chosen),
        whole=measured(final.whole, FINAL_CONFIDENCE) if final and final.held else None,
        recommended=_recommended(search),
        effects=tuple(effects),
        untried=(*untried, *_foreign(search), *_left(search, partial)),
        seconds=seconds,
        partial=partial,
    )


def _foreign(search: Search) -> Iterator[Untried]:
    parted = {option.choice.setting for option in search.options}  # others of its values were tried
    left = {
        (name, value if name in parted else None): option.framework
        for option in search.foreign
        for name, value in ((option.choice.setting, option.choice.value),)
    }
    for (name, value), only in left.items():
        assert only is not None  # it would be for any
        yield Untried(name, value, f"it applies only to {framework(only).title} jobs")


def _last(trials: Sequence[Trial]) -> Iterator[Trial]:
    """Yield for equal trials the last that was decided, which has the rounds of those before."""
    found: dict[tuple[Candidate, Candidate], Trial] = {}
    for trial in trials:
        pair = trial.candidate, trial.against
        if trial.verdict != "undecided" or pair not in found:
            found[pair] = trial
    yield from found.values()


def _effect(trial: Trial, kinds: Mapping[Choice, Kind]) -> Effect:
    """A trial of something added, or, seen from the other side, of something removed."""
    more = added(trial.candidate, trial.against)
    if more:
        found, beside, verdict = measured(trial.ratios), trial.against, trial.verdict
    elif trial.candidate and trial.verdict in ("failed", "no effect"):
        # the rest of the candidate does
        more, found, beside, verdict = trial.candidate, None, AS_GIVEN, trial.verdict
    else:
        more, beside = added(trial.against, trial.candidate), trial.candidate
        found = measured([1 / ratio for ratio in trial.ratios])
        turned = {"helps": "hurts", "hurts": "helps"}
        verdict = turned.get(trial.verdict, trial.verdict)  # type: ignore[assignment]
    kind = furthest(kinds[choice] for choice in more)
    return Effect(more, beside, kind, verdict, found, trial.why)


def _unconfirmed(search: Search, final: Final, kinds: Mapping[Choice, Kind]) -> Effect:
    return Effect(
        choices=search.incumbent,
        beside=AS_GIVEN,
        kind=furthest(kinds[choice] for choice in search.incumbent),
        verdict=verdict_of(final.whole, FINAL_CONFIDENCE),
        measured=measured(final.whole, FINAL_CONFIDENCE),
        why=f"{final.why}, so the job stays as found" if final.why else UNCONFIRMED,
    )


def _recommended(search: Search) -> Measured | None:
    """The chosen set over TensorFlow's recommendation."""
    if search.chosen == search.recommended:
        return None
    if search.chosen == AS_GIVEN:
        for trial in search.trials:
            if trial.verdict == "undecided":  # too few rounds to report
                continue
            if trial.candidate == search.recommended and trial.against == AS_GIVEN:
                found = measured(trial.ratios)
                return inverse(found) if found else None
        return None
    return measured(search.final.recommended, FINAL_CONFIDENCE) if search.final else None


def _left(search: Search, partial: str | None) -> Iterator[Untried]:
    none = idle(search.options, search.trials)
    why = partial or "the budget was spent"
    begun = {choice for trial in search.trials for choice in added(trial.candidate, trial.against)}
    for option in search.untried():
        if option.choice in begun:  # it is among the effects, as undecided
            continue
        name = option.choice.setting
        reason = "another value had nothing to act on" if name in none else why
        yield Untried(name, option.choice.value, reason)


# The search's state next to the plan


def beside(plan: Path) -> Path:
    """The state's file for a plan's file: plan.tune.json for plan.json."""
    return plan.with_name(f"{plan.name.removesuffix('.gz').removesuffix('.json')}.tune.json")


def taken_up(path: Path, here: Circumstances, offer: Offer) -> Tune:
    """The state of an earlier search on this job and this machine.

    Raises UsageError when there is none, and when it is of another job, machine or space.
    """
    if not path.exists():
        raise UsageError(
            f"there is no search to continue: {path} does not exist",
            remedy="omit --resume; dltune saves the search next to the plan after each trial",
        )
    state = bench.load_tune(path)
    for what, was, now in (
        ("another job", " ".join(state.command), " ".join(here.command)),
        ("another machine", state.machine, here.machine.fingerprint),
        (
            "other candidates",
            in_words(state.options),
            in_words(tuple(o.choice for o in offer.options)),
        ),
    ):
        if was != now:
            raise UsageError(
                f"{path} holds a search with {what}: {was}; now {now}",
                remedy="use the same command and options, or omit --resume",
            )
    return state


class State:
    """State of a search in its file, written after each trial, so that it can be taken up again."""

    def __init__(self, file: Output, here: Circumstances, offer: Offer) -> None:
        self._file = file
        self._here = here
        self._options = tuple(option.choice for option in offer.options)

    def write(self, trials: Sequence[Trial], spent: float, framework: Framework | None) -> None:
        """Raises UsageError when it cannot be written."""
        self._file.write(
            Tune(
                schema=bench.TUNE_SCHEMA,
                created=documents.now(),
                dltune=__version__,
                command=self._here.command,
                machine=self._here.machine.fingerprint,
                framework=framework,
                options=self._options,
                spent=spent,
                trials=tuple(trials),
            )
        )

    def remove(self) -> None:
        """Remove the file: a search that has come to its end cannot be taken up."""
        self._file.path.unlink(missing_ok=True)
