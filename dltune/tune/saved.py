"""The search's state next to the plan, so that it can be taken up again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dltune import __version__
from dltune.base import documents
from dltune.base.documents import Output
from dltune.base.errors import UsageError
from dltune.plan.settings.effects import in_words
from dltune.plan.settings.setting import Circumstances
from dltune.schemas import bench
from dltune.schemas.bench import Trial, Tune
from dltune.schemas.profile import Framework
from dltune.tune.space import Offer


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
    """Written after each trial."""

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
