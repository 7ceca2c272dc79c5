"""Result of a search, in the form of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dltune.frameworks.capabilities import framework
from dltune.schemas.bench import Trial
from dltune.schemas.settings import Choice, Effect, Kind, Measured, SettingsPlan, Untried
from dltune.tune.candidate import AS_GIVEN, Candidate, added, furthest
from dltune.tune.search import Final, Search
from dltune.tune.verdict import FINAL_CONFIDENCE, inverse, measured, verdict_of
from dltune.tune.wanted import idle

UNCONFIRMED = "the final rounds did not confirm the gain, so the job stays as found"


def section(
    search: Search,
    *,
    command: Sequence[str],
    untried: Sequence[Untried],
    seconds: float,
    partial: str | None,
) -> SettingsPlan:
    """`untried` before the search began; `partial`: why it ended before its end."""
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
