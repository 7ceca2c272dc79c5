"""A polite kill is an interrupt: the signals that ask dltune to end raise where Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Ended(KeyboardInterrupt):
    """dltune was asked to end by the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As a shell tells of a process that the signal has ended."""
        return 128 + self.number


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise `Ended` within the block, unless they are ignored."""
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            before[number] = signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, _: FrameType | None) -> None:
    raise Ended(number)
