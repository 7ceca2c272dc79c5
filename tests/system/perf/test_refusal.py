"""What refusals mean: from a table of errors, and from kernels that really refuse."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from dltune.system.perf import access, events
from dltune.system.perf.access import (
    CPU_LEVEL,
    KERNEL_LEVEL,
    USER_LEVEL,
    PerfEvents,
    Refused,
    paranoid_level,
    refusal,
)
from dltune.system.perf.events import parse


@pytest.mark.parametrize(
    ("code", "paranoid", "reason", "remedy"),
    [
        (errno.EACCES, 3, "perf_event_paranoid is 3", "perf_event_paranoid=2"),
        (errno.EPERM, 4, "perf_event_paranoid is 4", "perf_event_paranoid=2"),
        (errno.EPERM, 2, "seccomp", "PERFMON"),
        (errno.EACCES, 2, "seccomp filter or a security policy", "PERFMON"),
        (errno.EPERM, None, "seccomp", "PERFMON"),
        (errno.ENOSYS, None, "without perf events", "kernel"),
        (errno.ENOSYS, 1, "seccomp", "PERFMON"),
        (errno.ENOENT, 2, "no performance monitoring unit", "virtual PMU"),
        (errno.ENOENT, 4, "no performance monitoring unit", "virtual PMU"),
        (errno.EBUSY, 2, "another tool", "end"),
        (errno.EMFILE, 2, "each counter of each thread is an open file", "ulimit -n"),
        (errno.ESRCH, 2, "ended", "name a running thread"),
        (errno.E2BIG, 2, "Argument list too long", "perf_event_open"),
    ],
)
def test_each_refusal_has_its_reason_and_remedy(code, paranoid, reason, remedy):
    refused = refusal(code, paranoid)
    assert reason in refused.reason
    assert remedy in refused.remedy


@pytest.mark.parametrize(
    ("level", "paranoid", "bars"),
    [
        (USER_LEVEL, 3, "allows only root to count events"),
        (KERNEL_LEVEL, 2, "allows only root to count events in the kernel"),
        (CPU_LEVEL, 1, "allows only root to count events of whole CPUs"),
    ],
)
def test_what_a_level_bars_and_which_would_not(level, paranoid, bars):
    refused = refusal(errno.EACCES, paranoid, level)
    assert bars in refused.reason
    assert refused.remedy == f"as root: sysctl kernel.perf_event_paranoid={level}"
    assert "seccomp" in refusal(errno.EACCES, level, level).reason


@pytest.fixture
def level(monkeypatch):
    """Pretends a level and whether a PMU counts."""

    def pretend(paranoid: int, *, pmu: bool) -> None:
        hardware = None if pmu else Refused("no PMU", "get one")
        monkeypatch.setattr(access, "paranoid_level", lambda: paranoid)
        monkeypatch.setattr(access, "available", lambda: PerfEvents(hardware, None, paranoid))

    return pretend


@pytest.mark.parametrize(
    ("name", "code", "place", "pmu", "message", "remedy"),
    [
        ("cycles", errno.ENOENT, {}, False, "no performance monitoring unit", "virtual PMU"),
        (
            "LLC-stores",
            errno.ENOENT,
            {},
            True,
            "this CPU does not have the event",
            "leave the event out",
        ),
        (
            "LLC-stores",
            errno.EINVAL,
            {},
            True,
            "this CPU does not have the event",
            "leave the event out",
        ),
        (
            "rffff",
            errno.EOPNOTSUPP,
            {},
            True,
            "this CPU does not have the event",
            "leave the event out",
        ),
        ("cycles", errno.EINVAL, {"leader": 3}, True, "too few counters", "in turns"),
        (
            "cgroup-switches",
            errno.ENOENT,
            {},
            False,
            "kernel does not have the event",
            "leave the event out",
        ),
        ("cycles", errno.ESRCH, {"tid": 77}, True, "thread 77 has ended", "name a running"),
        ("cycles", errno.EACCES, {"tid": 77}, True, "77 belongs to another user", "as root"),
        ("cs", errno.EACCES, {}, True, "events in the kernel", "paranoid=1"),
        ("cycles", errno.EACCES, {"tid": -1}, True, "whole CPUs", "paranoid=0"),
        ("cycles", errno.EPERM, {}, True, "seccomp", "PERFMON"),
        ("cycles", errno.EBUSY, {}, True, "another tool", "end the other tool"),
    ],
)
def test_each_event_s_refusal(level, name, code, place, pmu, message, remedy):
    level(2, pmu=pmu)
    error = access.refused(parse(name), code, **place)
    assert str(error).startswith(f"{parse(name).name} cannot be counted: ")
    assert message in str(error)
    assert remedy in error.remedy


# The rest asks the kernel, in processes of their own that have given something up.

ASK = """
import json, os, sys
from dltune.base.errors import UsageError
from dltune.system.perf import access, counters, events, presets
import difflib, resource  # an ordinary user may not be able to read this Python's files
{give_up}
found = access.available()
told = {{"hardware": found.hardware and found.hardware.reason,
        "software": found.software and found.software.reason}}
for asked in {asked}:
    try:
        chosen, sentence = presets.choose(asked)
        told[asked] = [[event.name for event in chosen], sentence]
    except UsageError as error:
        told[asked] = [str(error), error.remedy]
try:
    counters.Group([events.parse("task-clock")], tid=os.getppid()).close()
except UsageError as error:
    told["parent"] = [str(error), error.remedy]
print(json.dumps(told))
"""

BECOME_NOBODY = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else ""

# a filter as container runtimes install it: one system call is refused, all others pass
FILTER = """
import ctypes, errno, struct
program = b"".join(struct.pack("=HBBI", *line) for line in [
    (0x20, 0, 0, 0),                                                    # load the call's number
    (0x15, 0, 1, events.NUMBERS[os.uname().machine]),                  # is it perf_event_open?
    (0x06, 0, 0, 0x00050000 | errno.{code}),                            # then refuse
    (0x06, 0, 0, 0x7FFF0000),                                           # else allow
])
buffer = ctypes.create_string_buffer(program, len(program))
filter = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
zero = ctypes.c_ulong(0)
assert libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0         # PR_SET_NO_NEW_PRIVS
if libc.prctl(22, ctypes.c_ulong(2), filter, zero, zero):               # PR_SET_SECCOMP
    sys.exit(77)
"""


def ask(give_up: str, *asked: str) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(give_up=give_up, asked=asked)],
        capture_output=True,
        text=True,
    )
    if done.returncode == 77:
        pytest.skip("a seccomp filter cannot be installed here")
    assert done.returncode == 0, done.stderr
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told


@pytest.mark.skipif(paranoid_level() != 2, reason="kernel.perf_event_paranoid is not 2")
def test_an_ordinary_user():
    told = ask(BECOME_NOBODY, "software", "cs", "task-clock,minor-faults:uk", "minor-faults")
    names, sentence = told["software"]
    assert names == ["task-clock", "minor-faults", "major-faults"]
    assert "only page faults in user space, and no context switches or migrations" in sentence
    assert "kernel.perf_event_paranoid is 2" in sentence
    assert told["minor-faults"][0] == ["minor-faults"]
    for asked in ("cs", "task-clock,minor-faults:uk"):
        message, remedy = told[asked]
        assert "kernel.perf_event_paranoid is 2, which allows only root" in message
        assert remedy == "as root: sysctl kernel.perf_event_paranoid=1"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give it up")
def test_another_user_s_thread():
    message, remedy = ask(BECOME_NOBODY)["parent"]
    assert f"thread {os.getpid()} belongs to another user" in message
    assert "as that user" in remedy


@pytest.mark.skipif(os.uname().machine not in events.NUMBERS, reason="unknown architecture")
@pytest.mark.parametrize(("code", "verb"), [("EPERM", "blocks"), ("ENOSYS", "hides")])
def test_a_container_s_filter(code, verb):
    told = ask(FILTER.format(code=code), "auto", "paper", "task-clock")
    assert "seccomp" in told["hardware"]
    assert "seccomp" in told["software"]
    for asked in ("auto", "paper", "task-clock"):
        message, remedy = told[asked]
        assert "cannot be counted: the container's seccomp filter" in message
        assert verb in message
        assert "--cap-add PERFMON" in remedy
