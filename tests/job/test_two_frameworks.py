"""A process in which two frameworks are: the plugins of both come, and one is let go."""

from __future__ import annotations

import sys

import pytest

from dltune.job import protocol
from dltune.job.launch import Job

PROCESS = """
import json, os, socket, sys

def say(connection, **message):
    connection.sendall(json.dumps(message).encode() + b"\\n")

def plugin(framework):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["DLTUNE_SOCKET"])
    say(connection, type="plugin", pid=os.getpid(), version="1", git="", python="",
        framework=framework)
    told = b""
    while not told.endswith(b"ready\\n"):
        told += connection.recv(1 << 16)
    return connection

first = plugin(sys.argv[1])
if "graph" in sys.argv[3:]:
    node = ["node", "AssignSub" if "kept" in sys.argv[3:] else "DecodeJpeg", [], [], False]
    say(first, type="graph", id=0, signature="s", name="", device="", xla=False, nodes=[node])
second = plugin(sys.argv[2])
kept, gone = (first, second) if "kept" in sys.argv[3:] else (second, first)
say(kept, type="complaint", text="kept")
assert gone.recv(1) == b""
"""


@pytest.mark.parametrize(
    "frameworks",
    [
        ("tensorflow", "pytorch"),  # imported only, and the one that trains
        ("tensorflow", "pytorch", "graph"),  # which reads the data
        ("tensorflow", "pytorch", "graph", "kept"),
        ("pytorch", "tensorflow", "kept"),
    ],
)
def test_one_of_two_plugins_is_let_go(frameworks: tuple[str, ...]) -> None:
    with Job([sys.executable, "-c", PROCESS, *frameworks]) as job:
        heard = [event for event in job.events(1.0) if event and event.process]
        assert job.exit_code == 0
    last = heard[-1]
    assert isinstance(last.message, protocol.Complaint)
    assert last.process is not None
    assert last.process.hello.framework == frameworks["kept" not in frameworks]
