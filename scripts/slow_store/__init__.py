"""A store with a fixed time per request, emulated on this machine: `mounted`. For root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dltune.native.build import cache_folder, compiler

SOURCE = Path(__file__).with_name("store.cc")


@contextlib.contextmanager
def mounted(folder: Path, seconds: float = 1e-3) -> Iterator[Path]:
    """`folder` shown through a FUSE file system in which each read request takes `seconds`."""
    program = cache_folder() / "slow-store"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_name(f".{program.name}.{os.getpid()}")
        flags = ["-O2", "-std=c++17", "-Wall", "-pthread", "-o", str(unfinished)]
        subprocess.run([*compiler(), *flags, str(SOURCE)], check=True)
        unfinished.replace(program)
    with tempfile.TemporaryDirectory(prefix="dltune-store-") as place:
        store = subprocess.Popen(
            [program, folder.resolve(), place, str(round(seconds * 1e6))],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert store.stdout is not None
            if store.stdout.readline() != "ready\n":
                raise RuntimeError("the store could not be mounted: it needs root and /dev/fuse")
            yield Path(place)
        finally:
            store.terminate()
            store.wait()
