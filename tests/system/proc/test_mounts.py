"""File systems that a process sees."""

from __future__ import annotations

import os
from pathlib import Path

from dltune.system.kernel_files import Mount, mounts


def test_spaces_and_empty_sources(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "36 35 98:0 /sub\\040folder /mnt/a\\011tab rw,noatime master:1 - ext3 /dev/a\\134b rw,acl\n"
        "37 35 0:5 / /empty rw shared:2 - tmpfs  rw\n"
        "no mount\n"
    )
    assert mounts(table) == [
        Mount("98:0", "/sub folder", "/mnt/a\ttab", "ext3", "/dev/a\\b", frozenset({"rw", "acl"})),
        Mount("0:5", "/", "/empty", "tmpfs", "", frozenset({"rw"})),
    ]


def test_this_machine_has_a_proc_and_processes_that_have_ended_see_nothing():
    found = mounts(Path("/proc/self/mountinfo"))
    (proc,) = [mount for mount in found if mount.point == "/proc"][-1:]
    status = Path("/proc").stat()
    assert proc.device == f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    assert mounts(Path("/proc/0/mountinfo")) == []
