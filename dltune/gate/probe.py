"""What a command is: a training job whose steps can be timed, or one that is timed whole."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dltune.documents.machine import Machine
from dltune.gate.side import Side, blame, last_lines
from dltune.job.diagnosis import Sightings, hopeless, why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.orders import DETACH, REPORT, Orders, machine_lines
from dltune.job.record import Record
from dltune.profile.discovery import Discovery

LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class ProbeResult:
    """`signatures` of the step graphs, the main one first; none for a command timed whole.

    `seconds`: how long the command ran, as long as it was looked at.
    """

    signatures: tuple[str, ...]
    seconds: float
    tensorflow: str | None


def look(
    side: Side,
    machine: Machine,
    *,
    steps: bool | None,
    timeout: float,
    tell: Callable[[str], None],
) -> ProbeResult:
    """Run the side's command until its steps are known, or to its end.

    It also warms what the first run of a fresh checkout finds cold: compiled Python, files.
    `steps`: whether there must be steps (True), must not be looked for (False), or both is fine
    (None). Raises UsageError, which names the side, when the command fails, has no steps, or takes
    longer than `timeout` seconds.
    """
    seen = Sightings()
    discovery = Discovery(seen.records)

    def greet(process: Process) -> list[str]:
        seen.records[process.pid] = Record(process.hello)
        return [*machine_lines(machine), DETACH, *Orders(1, discover=steps is not False).lines()]

    began = looked = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dltune-gate-log-", dir=side.temporary) as folder:
        log = Path(folder) / "log"
        with open(log, "wb") as file:
            job = Job(
                side.command,
                greet=greet,
                environment=dict(side.environment),
                stdout=file.fileno(),
                stderr=file.fileno(),
                folder=side.folder,
            )
        processes: list[Process] = []
        with job:
            tell(f"a first run in {side.title}")
            for event in job.events(min(0.5, timeout)):
                if event is not None and event.process and event.process not in processes:
                    processes.append(event.process)
                if event is not None:
                    _hear(event, seen)
                if steps is not False and (found := discovery.find()):
                    record = seen.records[found.pid]
                    signatures = tuple(record.graphs[g].signature for g in found.targets)
                    seconds = time.monotonic() - began
                    return ProbeResult(signatures, seconds, record.process.version)
                if time.monotonic() - began > timeout:
                    what = f"the command took longer than {timeout:g} s"
                    raise blame(side, f"{what}, and no step repeated", last_lines(log))
                if steps and time.monotonic() - looked > LOOK_SECONDS:
                    looked = time.monotonic()
                    for process in processes:
                        process.order([REPORT])
                    if error := hopeless(seen):
                        raise blame(side, str(error), last_lines(log))
            code = job.exit_code
        if code:
            raise blame(side, f"the command ended with exit code {code}", last_lines(log))
        if steps:
            raise blame(side, str(why_no_step(seen, code)), last_lines(log))
    versions = [record.process.version for record in seen.records.values()]
    return ProbeResult((), time.monotonic() - began, versions[0] if versions else None)


def _hear(event: Event, seen: Sightings) -> None:
    seen.add(event.message)
    if event.process is not None and event.process.pid in seen.records:
        seen.records[event.process.pid].add(event.message)
