"""The file system and device below a file; the kernel's account of pressure."""

from __future__ import annotations

from pathlib import Path

import pytest

from dltune.watch.files.storage import device_of, storage
from dltune.watch.host import PressureWatch


def test_a_file_of_this_machine(plain_file):
    found = storage(plain_file)
    assert found.device == device_of(plain_file.stat().st_dev)
    assert str(plain_file).startswith(found.mount.rstrip("/") + "/")
    assert found.kind != "?"


def made(root: Path, device: str, kind: str, *, ahead: int = 128) -> None:
    """A tree as the kernel shows it, for a file system mounted at /."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(
        "1 0 0:1 / / rw - rootfs rootfs rw\n"
        f"27 1 {device} / / rw,relatime shared:1 - {kind} /dev/my\\040disk1 rw\n"
    )
    disk = root / "sys/devices/virtual/block/disk"
    (disk / "queue").mkdir(parents=True)
    (disk / "part1").mkdir()
    (disk / "queue/rotational").write_text("1\n")
    (disk / "queue/scheduler").write_text("none [mq-deadline] bfq\n")
    (disk / "queue/nr_requests").write_text("64\n")
    (disk / "queue/read_ahead_kb").write_text(f"{ahead}\n")
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block" / device).symlink_to(disk / "part1")


def test_a_partition_has_its_disks_queue(tmp_path, plain_file):
    device = device_of(plain_file.stat().st_dev)
    made(tmp_path, device, "xfs", ahead=4096)
    found = storage(plain_file, tmp_path)
    assert (found.kind, found.source) == ("xfs", "/dev/my disk1")
    assert (found.rotational, found.scheduler, found.requests) == (True, "mq-deadline", 64)
    assert found.read_ahead == 4096 << 10
    assert found.counted


@pytest.mark.parametrize("kind", ["fuse.sshfs", "nfs4", "lustre", "cifs", "tmpfs"])
def test_file_systems_whose_reads_are_not_counted(tmp_path, plain_file, kind):
    made(tmp_path, device_of(plain_file.stat().st_dev), kind)
    assert not storage(plain_file, tmp_path).counted


def test_pressure_of_the_machine_and_of_the_jobs_cgroup(tmp_path):
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir()
    (tmp_path / "proc/7/cgroup").write_text("3:cpu:/x\n0::/jobs/train\n")
    group = tmp_path / "sys/fs/cgroup/jobs/train"
    group.mkdir(parents=True)

    def write(path: Path, some: int, full: int) -> None:
        path.write_text(
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\n"
            f"full avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
        )

    write(tmp_path / "proc/pressure/io", 1000, 500)
    write(group / "io.pressure", 0, 0)
    watch = PressureWatch(7, tmp_path)
    write(tmp_path / "proc/pressure/io", 1000 + 10**9, 500)
    write(group / "io.pressure", 0, 0)
    machine, job = watch.shares()
    # more than the whole time cannot be
    assert (machine.resource, machine.of, machine.some, machine.full) == ("io", "machine", 1.0, 0.0)
    assert (job.of, job.some, job.full) == ("job", 0.0, 0.0)


def test_a_kernel_without_pressure(tmp_path):
    assert PressureWatch(1, tmp_path).shares() == ()
