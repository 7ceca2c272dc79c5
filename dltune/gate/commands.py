"""Measurement of a gate's command: its kind, its runs and its instructions.

A command is a training job whose steps can be timed, or it is timed whole; `look` finds out which.
`run` times a whole command. `callgrind` and `InstructionCounter` count its instructions, and
`value_in_document` reads values that others have measured or predicted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, refuse
from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.gate.checkouts import Side, blame
from dltune.gate.limits import Limit
from dltune.job.failures import Sightings, hopeless, why_no_step
from dltune.job.launch import Process
from dltune.job.protocol import DETACH, REPORT, Orders, machine_lines
from dltune.job.record import Record
from dltune.plan.plan import load_plan
from dltune.profile.processes import Discovery
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Threads
from dltune.system.perf import access, events
from dltune.system.perf.events import HARDWARE
from dltune.system.proc import stat
from dltune.turns.rounds import logged_job

# Kind of a command: a training job whose steps can be timed, or one that is timed whole

LOOK_SECONDS = 2.0
LONGER = "increase `timeout` in the configuration"


def look(
    side: Side,
    machine: Machine,
    *,
    steps: bool | None,
    timeout: float,
    tell: Callable[[str], None],
) -> tuple[str, ...]:
    """Run the side's command until its steps are known, or to its end: the signatures of its step
    graphs, the main one first; none for a command timed whole.

    It also warms what the first run of a fresh checkout finds cold: compiled Python, files.
    `steps`: whether there must be steps (True), must not be looked for (False), or both is fine
    (None). Raises UsageError, which names the side, when the command fails, has no steps, or takes
    longer than `timeout` seconds.
    """
    seen = Sightings()
    processes: list[Process] = []
    discovery = Discovery(seen.records)

    def greet(process: Process) -> list[str]:
        seen.records[process.pid] = Record(process.hello)
        processes.append(process)
        return [*machine_lines(machine), DETACH, *Orders(1, discover=steps is not False).lines()]

    began = looked = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dltune-gate-log-", dir=side.temporary) as folder:
        log = Path(folder) / "log"
        with logged_job(
            side.command, side.environment, log, greet=greet, folder=side.folder
        ) as job:
            tell(f"first run in {side.title}")
            for event in job.events(min(0.5, timeout)):
                if event is not None:
                    seen.add(event.message)
                if event is not None and event.process:
                    seen.records[event.process.pid].add(event.message)
                if steps is not False and (found := discovery.find()):
                    graphs = seen.records[found.pid].graphs
                    return tuple(graphs[target].signature for target in found.targets)
                if time.monotonic() - began > timeout:
                    what = f"the command took longer than {timeout:g} s"
                    raise blame(side, f"{what}, and no step repeated", log, remedy=LONGER)
                if steps and time.monotonic() - looked > LOOK_SECONDS:
                    looked = time.monotonic()
                    for process in processes:
                        process.order([REPORT])
                    if error := hopeless(seen):
                        raise blame(side, str(error), log)
            code = job.exit_code
        if code:
            raise blame(side, f"the command ended with exit code {code}", log)
        if steps:
            raise blame(side, str(why_no_step(seen, code)), log)
    return ()


# A command timed whole: its wall time, and the kernel's accounting of it and its children

ACCOUNTED = str(Path(__file__).with_name("accounted.py"))


def run(
    side: Side, *, timeout: float, counter: InstructionCounter | None = None
) -> dict[str, float]:
    """Run the side's command once: metric -> value, of the command and all children it waited for.

    `peak_bytes` is the resident memory of the largest of its processes. Raises UsageError when it
    cannot be started, fails, or takes longer than `timeout` seconds; then, and whenever the block
    is left early, its whole process group is ended.
    """
    with tempfile.TemporaryDirectory(prefix="dltune-gate-log-", dir=side.temporary) as folder:
        log = Path(folder) / "log"
        with open(log, "wb") as file:
            told, late = _accounted(side, file, timeout, counter)
        if late:
            raise blame(
                side,
                f"the command took longer than {timeout:g} s",
                log,
                remedy="increase `timeout` in the configuration",
            )
        if errno := told.get("errno"):
            raise blame(side, f"cannot start {side.command[0]}: {os.strerror(errno)}")
        if (code := told.get("exit_code")) is None:
            raise blame(side, "another process killed the command", log)
        if code:
            shown = code if code > 0 else 128 - code
            raise blame(side, f"the command ended with exit code {shown}", log)
    values: dict[str, float] = told["values"]
    return values


def build(side: Side, script: str, timeout: float) -> None:
    """Run the build command in the side's checkout, by the shell. Raises UsageError, which names
    the side and shows the last lines, when it fails."""
    try:
        run(replace(side, command=["sh", "-c", script]), timeout=timeout)
    except UsageError as error:
        raise UsageError(
            f"the build failed {error}", remedy="check `build` in the configuration"
        ) from None


def _accounted(
    side: Side, log: BinaryIO, timeout: float, counter: InstructionCounter | None
) -> tuple[dict[str, Any], bool]:
    """Return accounted.py's report on the side's command, and True if it had to be ended for
    being late."""
    late = threading.Event()
    reading, writing = os.pipe()
    counting = counter.handle if counter else -1
    handles = [str(writing), str(counting)]
    with open(reading, "rb") as told:
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", ACCOUNTED, *handles, *side.command],
                cwd=side.folder,
                env={**os.environ, **side.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[writing, counting] if counter else [writing],
            )
        except OSError as error:
            why = error.strerror or "it cannot be run"
            raise blame(side, f"cannot start {side.command[0]}: {why}") from None
        finally:
            os.close(writing)

        def end() -> None:
            late.set()
            _kill(child.pid)

        watch = threading.Timer(timeout, end)
        watch.start()
        try:
            child.wait()
        except BaseException:
            _kill(child.pid)
            child.wait()
            raise
        finally:
            watch.cancel()
        written = told.read()
    values: dict[str, Any] = json.loads(written.splitlines()[0]) if written else {}
    _kill(child.pid)  # the processes that it has left behind
    return values, late.is_set()


def _kill(group: int) -> None:
    """Kill a process group, and its descendants in other sessions, as torchrun's ranks."""
    stat.send(signal.SIGKILL, group)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


# Instructions of a command: counted by the processor where it can, else by callgrind, else the
# reason why not

TOTALS = re.compile(rb"^(?:totals|summary): (\d+)", re.M)


class InstructionCounter:
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
        run(under, timeout=timeout)
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


# Values that others have measured or predicted: a number in a JSON document of a checkout

REPORTS = {"io_amplification": "I/O report", "background_share": "Horovod report"}


def value_in_document(limit: Limit, folder: Path) -> float:
    """The limit's value in `folder`. Raises UsageError when its document is not there, is not what
    it should be, or has no such number."""
    assert limit.document is not None
    path = folder / limit.document
    if limit.metric == "plan_step_time":
        return _predicted(path)
    try:
        found: object = msgspec.json.decode(documents.content(path))
    except documents.NOT_JSON as error:
        raise UsageError(
            f"{path} is not JSON: {error}", remedy="correct `document` in the configuration"
        ) from None
    assert limit.field is not None
    for part in limit.field.split("."):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            raise UsageError(
                f"{path} has no field {visible(limit.field)!r}: {part!r} is missing",
                remedy="correct `field` in the configuration",
            )
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise UsageError(
            f"{path}: {visible(limit.field)} is not a number",
            remedy="correct `field` in the configuration",
        )
    refuse(str(path), AMOUNT.faults(visible(limit.field), found))
    return float(found)


def _predicted(path: Path) -> float:
    """Seconds of a step that the plan in a file predicts for what it chose. Raises UsageError."""
    plan = load_plan(path)
    section = plan.of(Threads)
    if section is None:
        raise UsageError(
            f"{path} predicts no step time: it has no threads section",
            remedy="use a plan made by `dltune plan`",
        )
    return section.chosen.seconds


def why_missing(limit: Limit) -> str | None:
    """Why there is nothing to read; None when a document is named."""
    if limit.document is not None:
        return None
    if limit.metric == "plan_step_time":
        return "no plan is configured (document = 'plan.json')"
    return f"no {REPORTS[limit.metric]} is configured (document = ..., field = ...)"
