"""What a search for settings has found so far, so that it can be taken up again.

Ratios are seconds of a step over those of `against` in the same round: below 1 is faster.
"""

from __future__ import annotations

import msgspec

from dltune.documents import files
from dltune.documents.faults import AMOUNT, POSITIVE, each, empty
from dltune.documents.profile import Framework, tensorflow_alone
from dltune.documents.sections.settings import MEASURED, Choice, Verdict

SCHEMA = "dltune.tune/2"


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A candidate beside the best one of that time, round by round. `why` is a sentence."""

    candidate: tuple[Choice, ...]
    against: tuple[Choice, ...]
    verdict: Verdict
    ratios: tuple[float, ...]
    why: str = ""


class Tune(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`machine` is the machine's fingerprint; `framework` what runs the job, null where it had not
    told yet. `options` are the choices that the search may try, in
    that order; `spent` the seconds of the budget that are gone."""

    schema: str
    created: str
    dltune: str
    command: tuple[str, ...]
    machine: str
    framework: Framework | None
    options: tuple[Choice, ...]
    spent: float
    trials: tuple[Trial, ...]


def check(state: Tune) -> list[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    faults = [*empty("", state, "command"), *AMOUNT.of("", state, "spent")]
    for here, trial in each("trials", state.trials):
        faults += POSITIVE.faults(f"{here}.ratios", *trial.ratios)
        if trial.verdict in MEASURED and not trial.ratios:
            faults.append(f"{here}.verdict must rest on ratios, got {trial.verdict!r} without")
    return faults


load = files.reader(Tune, SCHEMA, check, {1: tensorflow_alone})
