"""The tune document: the state of a search for settings. `dltune tune` keeps it next to its plan
and removes it when the search is complete.

Ratios are step times divided by the step times of `against` in the same round. Below 1 is faster.
"""

from __future__ import annotations

import msgspec

from dltune.base import files
from dltune.base.faults import (
    AMOUNT,
    POSITIVE,
    each,
    empty,
)
from dltune.schemas.profile import Framework, tensorflow_alone
from dltune.schemas.sections.settings import MEASURED, Choice, Verdict

SCHEMA = "dltune.tune/2"


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A candidate compared with the best settings at that time.

    `candidate`: settings of the candidate.
    `against`: best settings at that time.
    `verdict`: result of the comparison.
    `ratios`: one ratio per round.
    `why`: explanation of the verdict.
    """

    candidate: tuple[Choice, ...]
    against: tuple[Choice, ...]
    verdict: Verdict
    ratios: tuple[float, ...]
    why: str = ""


class Tune(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """The state of a search.

    `machine`: fingerprint of the machine.
    `framework`: framework that runs the job; null if not known yet.
    `options`: choices that the search can try, in this order.
    `spent`: seconds of the budget already used.
    `trials`: completed trials.
    """

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
            faults.append(f"{here}.verdict {trial.verdict!r} needs ratios, but ratios is empty")
    return faults


load = files.reader(Tune, SCHEMA, check, {1: tensorflow_alone})
