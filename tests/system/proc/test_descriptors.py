"""Files that a process has open."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dltune.system.proc.process import plain_files, position, target


def test_plain_files_that_are_read(tmp_path):
    path, written = tmp_path / "file", tmp_path / "written"
    path.write_bytes(bytes(1000))
    with open(path, "rb", buffering=0) as file, open(written, "wb") as other:
        found = {one.number: one for one in plain_files(os.getpid())}
        assert other.fileno() not in found
        one = found[file.fileno()]
        assert (one.status.st_ino, one.status.st_size) == (path.stat().st_ino, 1000)
        assert target(os.getpid(), file.fileno()) == str(path)
        path.unlink()
        assert target(os.getpid(), file.fileno()) == f"{path} (deleted)"
        with open(one.place, "rb") as again:
            assert len(again.read()) == 1000


def test_positions_and_flags(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    descriptor = os.open(path, os.O_RDONLY | os.O_NOATIME)
    os.lseek(descriptor, 700, os.SEEK_SET)
    found = position(os.getpid(), descriptor)
    assert found is not None
    assert found.at == 700
    assert found.flags & os.O_NOATIME
    os.close(descriptor)
    assert position(os.getpid(), descriptor) is None
    assert target(os.getpid(), descriptor) is None


def test_what_is_no_file():
    reading, writing = os.pipe()
    shown = target(os.getpid(), reading)
    assert shown is not None
    assert shown.startswith("pipe:")
    assert reading not in {one.number for one in plain_files(os.getpid())}
    os.close(reading)
    os.close(writing)


def test_what_has_ended_has_none():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(OSError, match=str(gone.pid)):
        list(plain_files(gone.pid))
