"""The signals that ask dltune to end: who hears them, and a polite kill that is an interrupt."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

import click

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# signals of a scheduler to a job before its time is over
TOLD = (signal.SIGUSR1, signal.SIGUSR2)


class Ended(KeyboardInterrupt):
    """dltune was asked to end by the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """Exit code that a shell reports for a process ended by the signal."""
        return 128 + self.number


@contextlib.contextmanager
def heard(
    handler: Callable[[int, FrameType | None], object], numbers: Iterable[int] = ENDING
) -> Iterator[None]:
    """Within the block `handler` gets SIGINT, SIGTERM, SIGHUP and SIGQUIT, or these `numbers`.

    Signals that dltune was started to ignore are excluded, as nohup does with SIGHUP and a shell
    with SIGINT for its background processes: they stay ignored, by dltune and by the job.
    """
    before = {}
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            if earlier is not None:  # else a library's, which Python cannot put back
                signal.signal(number, earlier)


def raised() -> contextlib.AbstractContextManager[None]:
    """Within the block these signals raise `Ended`, unless they are ignored."""
    return heard(_raise)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Act as `raised`; report a signal that comes out of the block, and exit as for it."""
    try:
        with raised():
            yield
    except Ended as ended:
        click.echo(f"dltune: ended by {ended}", err=True)
        raise SystemExit(ended.exit_code) from None


def _raise(number: int, _: FrameType | None) -> None:
    raise Ended(number)
