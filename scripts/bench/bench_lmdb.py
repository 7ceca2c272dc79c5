"""How fast LMDB files are indexed and their keys listed, against py-lmdb.

    python scripts/bench/bench_lmdb.py --folder /data/scratch          # all cases
    python scripts/bench/bench_lmdb.py --folder /data/scratch --records 2000000 inline

Cases: `inline` (100-byte records in the leaf pages), `overflow` (4,000-byte records, each on a page
of its own), `keys` (8,000 records of 192 KB: a cold listing of the keys). The databases are made in
the folder and kept there for the next time. "cold": the file's pages were dropped from the page
cache (posix_fadvise DONTNEED) before each run, and `read` is what /proc/self/io says came from
storage. `scan` finds the records, `index` also keeps them beside the file, `keys` lists all keys in
Python. Ways take turns; figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SIZES = {"inline": 100, "overflow": 4000, "keys": 192 * 1024}
RECORDS = {"inline": 2_000_000, "overflow": 500_000, "keys": 8_000}

# each in a process of its own, told the folder: prints seconds, bytes from storage, records
MEASURED = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
def read_bytes():
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])
{setup}
before, began = read_bytes(), time.perf_counter()
{work}
print(time.perf_counter() - began, read_bytes() - before, count)
"""
WAYS = {
    "scan": (
        "from dltune.systems.lmdb.format import lmdb_binding\n"
        "from dltune.systems.lmdb.format.datafile import opened\n"
        "from dltune.systems.lmdb.format.lmdb_binding import scan\n"
        "import numpy\n"
        "lmdb_binding.load()",
        "with opened(folder) as data:\n    count = scan(data, None)[0].arrays['sizes'].size",
    ),
    "index": (
        "from dltune.systems.lmdb.format import lmdb_binding\n"
        "from dltune.systems.lmdb.format.index import Index\n"
        "import numpy\n"
        "lmdb_binding.load()\n"
        "(folder / 'data.mdb.dltune-index').unlink(missing_ok=True)",
        "count = len(Index.open(folder))",
    ),
    "index, keys": (
        "from dltune.systems.lmdb.format import lmdb_binding\n"
        "from dltune.systems.lmdb.format.index import Index\n"
        "import numpy\n"
        "lmdb_binding.load()\n"
        "(folder / 'data.mdb.dltune-index').unlink(missing_ok=True)",
        "count = len(list(Index.open(folder).keys()))",
    ),
    "kept index, keys": (
        "from dltune.systems.lmdb.format.index import Index\nimport numpy",
        "count = len(list(Index.open(folder).keys()))",
    ),
    "py-lmdb": (
        "import lmdb",
        "env = lmdb.open(str(folder), readonly=True, lock=False)\n"
        "count = len(list(env.begin().cursor().iternext(values=False)))",
    ),
    "py-lmdb, no read-ahead": (
        "import lmdb",
        "env = lmdb.open(str(folder), readonly=True, lock=False, readahead=False)\n"
        "count = len(list(env.begin().cursor().iternext(values=False)))",
    ),
}


def made(folder: Path, case: str, records: int) -> Path:
    """The case's database, made in key order with transactions of at most 256 MB."""
    import lmdb

    path = folder / f"{case}-{records}"
    if path.exists():
        return path
    size = SIZES[case]
    unfinished = folder / f".{path.name}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with lmdb.open(str(unfinished), map_size=records * (size + 8192) + (1 << 28)) as env:
        batch = max(1, (256 << 20) // size)
        noise = os.urandom(size + 4096)
        for first in range(0, records, batch):
            with env.begin(write=True) as txn:
                for i in range(first, min(first + batch, records)):
                    txn.put(b"%08d" % i, noise[i % 4096 : i % 4096 + size], append=True)
    unfinished.rename(path)
    return path


def drop(path: Path) -> None:
    """Drops the file from the page cache; what is not yet on storage must go there first."""
    descriptor = os.open(path / "data.mdb", os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def warm(path: Path) -> None:
    with open(path / "data.mdb", "rb") as file:
        while file.read(1 << 24):
            pass


def measured(way: str, path: Path, prepare: Callable[[Path], None]) -> tuple[float, int, int]:
    prepare(path)
    time.sleep(0.2)
    setup, work = WAYS[way]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED.format(setup=setup, work=work), str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, read, count = done.stdout.split()
    return float(seconds), int(read), int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the databases: 5 GB")
    parser.add_argument("--records", type=int, help="instead of each case's own number")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("cases", nargs="*", help="inline, overflow, keys; all unless told")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(SIZES):
        parser.error(f"no case {', '.join(sorted(unknown))}")
    for case in options.cases or SIZES:
        path = made(options.folder, case, options.records or RECORDS[case])
        ways = ["scan", "index"]
        temperatures: dict[str, Callable[[Path], None]] = {"warm": warm}
        if case == "keys":
            ways = ["index, keys", "kept index, keys", "py-lmdb", "py-lmdb, no read-ahead"]
            temperatures = {"cold": drop}
        for temperature, prepare in temperatures.items():
            runs: dict[str, list[tuple[float, int, int]]] = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way in ways:
                    runs[way].append(measured(way, path, prepare))
            for way, told in runs.items():
                seconds = statistics.median(run[0] for run in told)
                read = statistics.median(run[1] for run in told)
                count = told[0][2]
                print(
                    f"{case:9} {temperature} {way:23} {count} records {seconds:.4f} s "
                    f"{count / seconds / 1e6:.3f} M/s, {read / 1e6:.1f} MB read"
                )


if __name__ == "__main__":
    main()
