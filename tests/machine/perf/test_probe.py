from __future__ import annotations

import errno
import shutil
import subprocess

import pytest

from dltune.machine.perf.probe import available
from dltune.machine.perf.refusal import refusal


def test_what_is_told_of_this_machine_agrees_with_the_kernel(tree):
    found = available()
    for refused in (found.hardware, found.software):
        assert refused is None or (refused.reason and refused.remedy)
    if found.paranoid is None:
        assert found.software is not None


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_agrees_with_perf():
    done = subprocess.run(
        ["perf", "stat", "-e", "page-faults:u", "true"], capture_output=True, text=True
    )
    counted = done.returncode == 0 and "not supported" not in done.stderr
    assert (available().software is None) == counted


@pytest.mark.parametrize(
    ("code", "paranoid", "reason", "remedy"),
    [
        (errno.EACCES, 3, "perf_event_paranoid is 3", "perf_event_paranoid=2"),
        (errno.EPERM, 4, "perf_event_paranoid is 4", "perf_event_paranoid=2"),
        (errno.EPERM, 2, "seccomp", "PERFMON"),
        (errno.EPERM, None, "seccomp", "PERFMON"),
        (errno.ENOSYS, None, "without perf events", "kernel"),
        (errno.ENOSYS, 1, "seccomp", "PERFMON"),
        (errno.ENOENT, 2, "no performance monitoring unit", "virtual PMU"),
        (errno.ENOENT, 4, "no performance monitoring unit", "virtual PMU"),
        (errno.EBUSY, 2, "another tool", "end"),
        (errno.E2BIG, 2, "Argument list too long", "perf_event_open"),
    ],
)
def test_each_refusal_has_its_reason_and_remedy(code, paranoid, reason, remedy):
    refused = refusal(code, paranoid)
    assert reason in refused.reason
    assert remedy in refused.remedy


def test_the_paranoid_level_is_read(tree):
    tree.write("proc/sys/kernel/perf_event_paranoid", -1)
    assert available(tree.root).paranoid == -1


def test_a_kernel_without_the_level(tree):
    assert available(tree.root).paranoid is None
