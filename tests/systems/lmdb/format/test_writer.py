"""A writer commits all the time while the index is made and used: never a wrong record."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.index import Index
from dltune.systems.lmdb.format.lmdb_binding import verify

RECORDS = 300
# every commit rewrites every record with its own number, in sizes that come and go; pauses grow, so
# that they become long enough to read in on any machine
WRITER = """
import sys, time, lmdb
env = lmdb.open(sys.argv[1], map_size=1 << 28, lib_version=int(sys.argv[2]), sync=False,
                writemap=sys.argv[3] == "writemap")
number = 0
while True:
    number += 1
    with env.begin(write=True) as txn:
        for i in range({records}):
            size = (i * 131 + number * 977) % 9000
            txn.put(b"%06d" % i, b"%08d" % number + b"%06d" % i + bytes([number % 251]) * size)
        assert txn.id() == number
    if number == 3:
        print("ready", flush=True)
    time.sleep(float(sys.argv[4]) * (1 + number / 20))
"""


@pytest.mark.parametrize(("version", "mapping"), [(1, "plain"), (3, "plain"), (1, "writemap")])
@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_no_record_is_ever_wrong(tmp_path: Path, version: int, mapping: str, pause: float) -> None:
    command = [sys.executable, "-c", WRITER.format(records=RECORDS), str(tmp_path)]
    command += [str(version // 2), mapping, str(pause)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    seen: set[int] = set()
    checked = 0
    try:
        assert writer.stdout.readline() == b"ready\n"
        path = tmp_path / "data.mdb"
        descriptor = os.open(path, os.O_RDONLY)
        # with a pause there is time to read; without, an honest refusal is as good
        ends = time.monotonic() + (240 if pause else 4)
        while (checked < 10 or len(seen) < 3) and time.monotonic() < ends:
            try:
                assert verify(path).faults == []
                index = Index.open(path)
            except UsageError as error:
                assert "changed while it was" in str(error), error  # noqa: PT017
                continue
            places = list(zip(index.offsets.tolist(), index.sizes.tolist(), strict=True))
            read = [os.pread(descriptor, size, at) for at, size in places]
            if not index.holds():
                continue
            checked += 1
            seen.add(index.txn)
            assert list(index.keys()) == [b"%06d" % i for i in range(RECORDS)]
            for i, value in enumerate(read):
                size = (i * 131 + index.txn * 977) % 9000
                fill = bytes([index.txn % 251]) * size
                assert value == b"%08d" % index.txn + b"%06d" % i + fill
        os.close(descriptor)
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert checked or pause == 0.0
