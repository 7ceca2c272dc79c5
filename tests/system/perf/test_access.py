from __future__ import annotations

import shutil
import subprocess

import pytest

from dltune.system.perf.access import available


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


def test_the_paranoid_level_is_read(tree):
    tree.write("proc/sys/kernel/perf_event_paranoid", -1)
    assert available(tree.root).paranoid == -1


def test_a_kernel_without_the_level(tree):
    assert available(tree.root).paranoid is None
