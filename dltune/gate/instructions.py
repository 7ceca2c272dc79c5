"""Instructions of a command: counted by the processor where it can, else by callgrind, else
the reason why not."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.gate import whole
from dltune.gate.side import Side
from dltune.system.perf import access, events
from dltune.system.perf.events import HARDWARE

TOTALS = re.compile(rb"^(?:totals|summary): (\d+)", re.M)


class Counter:
    """A performance counter of this thread and of all that it starts, in user space, which every
    process that inherits its handle can read."""

    def __init__(
        self, kind: int = events.TYPE_HARDWARE, config: int = HARDWARE["instructions"]
    ) -> None:
        """Raises OSError when the kernel refuses."""
        flags = events.INHERIT | events.EXCLUDE_KERNEL | events.EXCLUDE_HV
        self.handle = events.perf_event_open(kind, config, flags=flags)

    def close(self) -> None:
        os.close(self.handle)


def why_no_counter() -> str | None:
    """Why the processor's counter cannot be used here; None when it can."""
    refused = access.available().hardware
    return refused.reason if refused else None


def callgrind(side: Side, *, timeout: float) -> float:
    """Instructions of one run of the side's command and its children under callgrind.

    It runs some fifty times slower than plain, and counts the same in every run of a program that
    does the same: strings are hashed alike (PYTHONHASHSEED). Raises UsageError when the command
    fails under it or takes longer than `timeout` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="dltune-gate-callgrind-", dir=side.temporary) as name:
        folder = Path(name)
        command = [
            *("valgrind", "--tool=callgrind", "--quiet", "--trace-children=yes"),
            *(f"--callgrind-out-file={folder}/out.%p", "--", *side.command),
        ]
        hashing = {} if "PYTHONHASHSEED" in os.environ else {"PYTHONHASHSEED": "0"}
        under = replace(
            side,
            title=f"{side.title} under callgrind",
            command=command,
            environment={**side.environment, **hashing},
        )
        whole.run(under, timeout=timeout)
        counts = [total(path.read_bytes()) for path in folder.glob("out.*")]
        if not counts:
            raise UsageError(
                f"in {side.title}: callgrind counted no instructions",
                remedy="check that valgrind works here: valgrind --tool=callgrind true",
            )
        return float(sum(counts))


def total(out: bytes) -> int:
    """The instructions in one of callgrind's files. Raises UsageError when they are not there."""
    found = TOTALS.findall(out)
    if not found:
        raise UsageError(
            "callgrind's output has no totals",
            remedy="check that valgrind works here: valgrind --tool=callgrind true",
        )
    return int(found[-1])
