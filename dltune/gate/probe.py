"""Kind of a command: a training job whose steps can be timed, or one that is timed whole."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dltune.gate.side import Side, blame
from dltune.job.failures import Sightings, hopeless, why_no_step
from dltune.job.launch import Process
from dltune.job.protocol import DETACH, REPORT, Orders, machine_lines
from dltune.job.record import Record
from dltune.profile.processes import Discovery
from dltune.schemas.machine import Machine

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
        with side.start(log, greet=greet) as job:
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
