"""Files that a process has mapped, and what of them is in its page table."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.system.proc import process
from dltune.system.proc.process import Mapping, mappings

PAGE = mmap.PAGESIZE

addresses = st.integers(0, 2**47)
names = st.text(
    st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), min_size=1
).filter(lambda name: not name.endswith(" (deleted)"))
lines = st.builds(
    Mapping,
    start=addresses,
    end=addresses,
    offset=addresses,
    executable=st.booleans(),
    device=st.builds(os.makedev, st.integers(0, 4095), st.integers(0, 2**20 - 1)),
    inode=st.integers(0, 2**63),
    path=names.map("/".__add__),
)


def line(mapping: Mapping, deleted: bool = False) -> bytes:
    """As the kernel writes it."""
    device = f"{os.major(mapping.device):02x}:{os.minor(mapping.device):02x}"
    head = (
        f"{mapping.start:08x}-{mapping.end:08x} r-{'-x'[mapping.executable]}p "
        f"{mapping.offset:08x} {device} {mapping.inode} "
    ).ljust(73)
    return head.encode() + os.fsencode(mapping.path) + b" (deleted)" * deleted + b"\n"


OTHERS = (
    b"7ffd5c5e0000-7ffd5c601000 rw-p 00000000 00:00 0                          [stack]\n"
    b"7f1c2c000000-7f1c2c021000 rw-p 00000000 00:00 0 \n"
)


@given(st.lists(lines), st.booleans())
def test_what_the_kernel_writes_is_read_back(written: list[Mapping], deleted: bool) -> None:
    data = OTHERS + b"".join(line(mapping, deleted) + OTHERS for mapping in written)
    assert process.parse_mappings(data) == written


def test_a_mapped_file(tmp_path):
    path = tmp_path / "a file (deleted) twice"
    path.write_bytes(bytes(8 * PAGE))
    status = path.stat()
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 4 * PAGE, prot=mmap.PROT_READ, offset=2 * PAGE)
    (found,) = [one for one in mappings(os.getpid()) if one.path == str(path)]
    assert (found.end - found.start, found.offset) == (4 * PAGE, 2 * PAGE)
    assert not found.executable
    assert found.inode == status.st_ino
    path.unlink()
    assert found in mappings(os.getpid())
    mapped.close()
    assert found not in mappings(os.getpid())


def test_code_is_executable():
    code = {one.path for one in mappings(os.getpid()) if one.executable}
    assert any("libc.so" in path for path in code)


def test_pages_that_were_touched_and_what_the_kernel_was_advised(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(4096 * PAGE))
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    (place,) = [one for one in mappings(os.getpid()) if one.path == str(path)]

    def resident() -> process.Resident:
        (found,) = [
            one for one in process.resident_mappings(os.getpid()) if one.start == place.start
        ]
        return found

    assert resident() == (place.start, 0, 0, "normal")
    mapped.madvise(mmap.MADV_RANDOM)
    for page in range(100):
        assert mapped[page * PAGE] == 0
    found = resident()
    assert found.advice == "random"
    assert 100 * PAGE <= found.bytes < 4096 * PAGE
    mapped.madvise(mmap.MADV_SEQUENTIAL)
    assert resident().advice == "sequential"
    mapped.close()


def test_what_has_ended_has_none():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(OSError, match=str(gone.pid)):
        mappings(gone.pid)
    with pytest.raises(OSError, match=str(gone.pid)):
        process.resident_mappings(gone.pid)
