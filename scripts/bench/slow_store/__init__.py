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
from typing import NamedTuple

from dltune.native.build import cache_folder, compiler

SOURCE = Path(__file__).with_name("store.cc")


class Served(NamedTuple):
    """What a store read. `seeks`: requests that did not go on where the last one ended."""

    requests: int
    bytes: int
    seeks: int


@dataclass(frozen=True)
class Store:
    """A mounted store: where, once for each node, and the process that serves it."""

    paths: tuple[Path, ...]
    process: subprocess.Popen[str]

    @property
    def path(self) -> Path:
        return self.paths[0]

    def served(self) -> Served:
        """Since the last call."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGUSR1)
        return Served(*map(int, self.process.stdout.readline().split()))


@contextlib.contextmanager
def mounted(
    folder: Path, seconds: float = 1e-3, *, nodes: int = 1, seek: float = 0.0, rate: float = 0.0
) -> Iterator[Store]:
    """`folder` shown through a FUSE file system in which each read request takes `seconds`.

    `nodes`: so many mounts, each with a page cache of its own, of one disk. That serves one request
    after the other: `seek` seconds for those that do not follow each other, and `rate` bytes a
    second (0: no limit).
    """
    program = cache_folder() / "slow-store"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_name(f".{program.name}.{os.getpid()}")
        flags = ["-O2", "-std=c++17", "-Wall", "-pthread", "-o", str(unfinished)]
        subprocess.run([*compiler(), *flags, str(SOURCE)], check=True)
        unfinished.replace(program)
    with tempfile.TemporaryDirectory(prefix="dltune-store-") as place:
        paths = tuple(Path(place) / str(node) for node in range(nodes))
        for path in paths:
            path.mkdir()
        times = (str(round(seconds * 1e6)), str(round(seek * 1e6)), str(rate))
        store = subprocess.Popen(
            [program, folder.resolve(), *times, *paths], stdout=subprocess.PIPE, text=True
        )
        try:
            assert store.stdout is not None
            if store.stdout.readline() != "ready\n":
                raise RuntimeError("the store could not be mounted: it needs root and /dev/fuse")
            yield Store(paths, store)
        finally:
            store.terminate()
            store.wait()
