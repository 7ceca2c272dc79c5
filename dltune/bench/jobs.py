"""The processes of a contest: started together, ended together, their output out of the way."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dltune.base.errors import DltuneError
from dltune.bench.contest import Contest
from dltune.bench.runner import Runner
from dltune.job import rank_layout
from dltune.job.failures import last_words
from dltune.job.launch import Job

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def compete(
    contest: Contest, command: Sequence[str], *, verbose: bool, say: Callable[[str], None]
) -> None:
    """Start the command once for each setting, run the contest, end all jobs.

    What the jobs write goes to stderr when `verbose`; else it is kept aside, and the last lines of
    a job that died are shown. Raises as `Contest.run`, and UsageError when the command cannot be
    started.
    """
    with all_ended() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dltune-bench-")))
        logs = {}
        for number, runner in enumerate(contest.runners):
            logs[runner] = folder / f"{number}.log"
            with open(logs[runner], "wb") as log:
                to = 2 if verbose else log.fileno()
                applied = runner.setting.applied
                words, environment = rank_layout.with_own_port(
                    applied.command(command), applied.environment(os.environ)
                )
                job = Job(
                    words,
                    answer=runner.answer,
                    greet=runner.greet,
                    environment=environment,
                    stdout=to,
                    stderr=to,
                )
                stack.enter_context(job)
            # before the job is ended: who waits at the step barrier cannot handle a signal
            stack.callback(runner.release)
            runner.begin(job)
        try:
            contest.run()
        except DltuneError:
            _say_last_words(contest, logs, say)
            raise
        if contest.culprit:
            _say_last_words(contest, logs, say)


@contextlib.contextmanager
def all_ended() -> Iterator[contextlib.ExitStack]:
    """A stack for jobs: they are all ended, however often somebody presses Ctrl-C meanwhile."""
    before = {number: signal.getsignal(number) for number in INTERRUPTS}
    try:
        with contextlib.ExitStack() as stack:
            try:
                yield stack
            finally:
                for number in INTERRUPTS:
                    signal.signal(number, signal.SIG_IGN)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_last_words(contest: Contest, logs: dict[Runner, Path], say: Callable[[str], None]) -> None:
    for runner in contest.runners:
        if not (runner.ended and runner.exit_code):
            continue
        if words := last_words(logs[runner], f"the job under {runner.setting.name}"):
            say(words)
