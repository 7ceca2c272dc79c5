"""A store with a fixed time per request, emulated on this machine: `mounted`. For root."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dltune.native.build import cache_folder, compiler

SOURCE = Path(__file__).with_name("store.cc")


@dataclass(frozen=True)
class Store:
    """A mounted store: where, and the process that serves it."""

    path: Path
    process: subprocess.Popen[str]

    def served(self) -> tuple[int, int]:
        """Read requests and bytes since the last call."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGUSR1)
        requests, served = self.process.stdout.readline().split()
        return int(requests), int(served)


@contextlib.contextmanager
def mounted(folder: Path, seconds: float = 1e-3) -> Iterator[Store]:
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
            yield Store(Path(place), store)
        finally:
            store.terminate()
            store.wait()
