"""Inside the Python of a rank, whichever framework it uses: its messages to dltune, and its end.

Standard library only.
"""

from __future__ import annotations

import atexit
import os
import random
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

Tell = Callable[[dict[str, Any]], Any]
# seconds in which dltune ends a job after a report of a fault
_ENDING = 2.0
WRONG_USE = 2


class Rank:
    """A rank that has joined the others under a plan. `orders`: the `plan`, the `address` of the
    coordinator, this `rank` of so many `ranks`, its `device` here, the `host` at which it is
    reached and the network `interface` of that, a `seed`, and whether meeting the plan in part is
    permitted (`partial`). `taken`: the outcome of the plan so far, as `messages.Parallel` has
    it."""

    def __init__(
        self, orders: dict[str, Any], tell: Tell, taken: Callable[[], dict[str, Any]]
    ) -> None:
        self.orders = orders
        self._tell = tell
        self._taken = taken
        self._framework = ""
        self._code = 0
        random.seed(orders["seed"])

    def joins(self, framework: str) -> None:
        """From now on it is one of the `framework`'s, such as "JAX 0.10.2"; what this process
        starts is no rank."""
        self._framework = framework
        for name in ("RANK", "RANKS", "LOCAL_RANK", "LOCAL_RANKS"):
            os.environ.pop(f"DLTUNE_{name}", None)

    def say(self, **more: Any) -> None:
        told = {"type": "parallel", "pid": os.getpid(), "rank": self.orders["rank"]}
        self._tell({**told, "framework": self._framework, **self._taken(), **more})

    def refuse(self, fault: str, remedy: str) -> NoReturn:
        """Have dltune end the job."""
        self.say(fault=fault, remedy=remedy)
        time.sleep(_ENDING)
        os._exit(WRONG_USE)

    def watch_the_end(self, failed: Callable[[BaseException], None] = lambda _: None) -> None:
        """End a rank that fails at once: its framework would wait for the others, who wait for it.
        `failed`: called with the exception that ended the script."""
        owner = os.getpid()
        plain_hook, plain_exit = sys.excepthook, sys.exit

        def excepthook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            self._code = 1
            failed(error)
            plain_hook(kind, error, trace)

        def leave(status: Any = None, /) -> NoReturn:
            self._code = status if isinstance(status, int) else int(status is not None)
            plain_exit(status)

        def ending() -> None:
            if os.getpid() != owner:
                return
            self.say(ended=True)
            if self._code:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                os._exit(self._code & 0xFF)

        sys.excepthook, sys.exit = excepthook, leave
        atexit.register(ending)  # before the framework's registrations
