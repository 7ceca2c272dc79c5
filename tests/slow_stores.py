"""A file behind a store in user space, each request after a pause."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NEEDED = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="needs root and /dev/fuse"
    ),
]


@contextlib.contextmanager
def stored(tmp_path: Path) -> Iterator[Path]:
    """16 MiB behind a pause of 5 ms for each request."""
    behind, folder = tmp_path / "behind", tmp_path / "store"
    behind.write_bytes(os.urandom(1 << 20) * 16)
    folder.mkdir()
    script = Path(__file__).with_name("delayed_store.py")
    arguments = [sys.executable, str(script), str(folder), str(behind), "0.005"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as serving:
        assert serving.stdout is not None
        if serving.stdout.readline() != b"ready\n":
            assert serving.stderr is not None
            pytest.skip(serving.stderr.read().decode().strip().splitlines()[-1])
        try:
            yield folder / "data.mdb"
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
            serving.kill()
