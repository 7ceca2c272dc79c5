"""The send that waits for its turn, in steps of real servers that a fault strikes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dltune.job import protocol
from dltune.job.launch import Job, Process
from dltune.job.protocol import Orders
from dltune.schemas.profile import tensor

pytestmark = pytest.mark.tensorflow

JOB = Path(__file__).parents[2] / "jobs" / "struck_steps.py"
NAMES = [f"p{number}/read" for number in reversed(range(16))]
STRIKES = 1000
MIB = 1 << 20  # a parameter


@pytest.mark.proof
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "fault",
    ["cancelled", "closed", "failed", "partial", "together", "dead_workers", "dead_servers"],
)
def test_no_fault_of_a_step_keeps_the_next_from_its_order(
    fault: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """No hang and no leak. Where a cancellation comes to a server before the step that it is for,
    TensorFlow loses it, and what that step sends stays with the server: patience ends it then."""

    def greet(_: Process) -> list[str]:
        sends = [f"send\t/job:worker/task:0\t{name}" for name in NAMES]
        return ["core\t0\t0", "cores", "window\t1000", *sends, *Orders(1, discover=True).lines()]

    in_order = waited = 0
    ranks: dict[tuple[int, int], dict[int, int]] = {}  # by process and graph, of nodes
    until = time.monotonic() + 5 * STRIKES
    command = [sys.executable, str(JOB), fault, str(STRIKES)]
    with (
        open(tmp_path / "out", "w+") as out,
        Job(command, answer=lambda _: {"plugin": False}, greet=greet, stdout=out.fileno()) as job,
    ):
        for event in job.events(1.0):
            assert time.monotonic() < until, "it hangs"
            message = event.message if event is not None else None
            assert not isinstance(message, protocol.Failed), message
            if isinstance(message, protocol.Complaint):
                assert "waited ten seconds" in message.text
                waited += 1
            elif isinstance(message, protocol.Graph):
                ranks[event.process.pid, message.id] = {
                    number: NAMES.index(tensor(node.partner.rendezvous))
                    for number, node in enumerate(message.nodes)
                    if node.type == "_Send" and tensor(node.partner.rendezvous) in NAMES
                }
            elif isinstance(message, protocol.Execution):
                rank = ranks[event.process.pid, message.graph]
                sent = sorted(
                    (end, rank[node]) for node, *_, end, _ in message.events if node in rank
                )
                in_order += [one for _, one in sent] == list(range(len(NAMES)))
        assert job.exit_code == 0
        out.seek(0)
        seen = json.loads(out.read())
    record_property("seen", {**seen, "in order": in_order, "waited": waited})
    assert seen["struck"] == STRIKES
    # by chance none of them is; the last steps of a process that is killed are not heard of
    assert in_order >= seen["well"] / 2
    assert waited < STRIKES / 50
    assert seen["bytes"] < STRIKES * MIB / 4
    assert seen["threads"] < 200
    assert seen["files"] < 50
