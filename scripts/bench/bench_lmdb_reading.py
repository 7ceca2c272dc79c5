"""How fast records of LMDB files are read: py-lmdb alone, with read-ahead hints, and by dltune.

    python scripts/bench/bench_lmdb_reading.py --folder /data/scratch              # all cases; root
    python scripts/bench/bench_lmdb_reading.py --folder /data/scratch strided-4 --rounds 3

Cases: `shuffled-local` and `shuffled-store` (records of 192 KB in random order), `shuffled-small`
(records of 3 KB on the store), `strided-N` (N readers that share records of 192 KB, in key order,
on the store), `strided-local-N`, `training` (120 steps of a residual network whose examples come
shuffled from the store). "The store" is a FUSE file system, set up here, in which each read
request takes 1 ms. The databases are made in the folder and kept there for the next time.

Ways: `readahead` and `no readahead` are py-lmdb alone with either setting; `hints` is py-lmdb whose
records are asked for by `ReadAhead`; `direct` is `Reader` with direct I/O, one reader per node;
`cached` the same through the page cache; `each` with direct I/O, each rank for itself.

Each run is cold: the file's pages were dropped (posix_fadvise DONTNEED), which the kernel's count
of cached pages confirms before it, and `stored` (what came from storage, or the store) after it.
Ways take turns. Every run checks what it read. Figures are medians, the spread is half the
interquartile range over the median, ratios are over py-lmdb's better setting.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench_lmdb import drop, warm
from slow_store import Store, mounted

from dltune.stats import relative_spread
from dltune.systems.lmdb.format.index import Index
from dltune.watch.files.storage import cached

LARGE, SMALL = 192 * 1024, 3 * 1024
RECORDS = {LARGE: 6000, SMALL: 200_000}
SHUFFLED = {LARGE: 1200, SMALL: 12_000}  # records read of them
STRIDED = 2400  # by all readers together
BATCH = 8
WAYS = ("readahead", "no readahead", "hints", "direct", "cached", "each")

# one reader: told what to do, says "ready", begins when told to, prints what came of it
READER = '''
import itertools, json, os, resource, sys, time, zlib
from pathlib import Path
told = json.loads(sys.argv[1])
path, way, batch, count = told["path"], told["way"], told["batch"], told["count"]
rank, size = told["rank"], told["size"]
total = told["total"]
check = records = 0

def use(key, value):
    global check, records
    check = (check + zlib.crc32(value[-64:], zlib.crc32(key)) + len(value)) & 0xFFFFFFFF
    records += 1

def mine():
    """The positions of this rank, as the launcher's ranks share them."""
    if told["shuffled"] is not None:
        import numpy as np
        yield from np.random.default_rng((told["shuffled"], 0)).permutation(total)[:count].tolist()
        return
    for first in range(rank * batch, count, size * batch):
        yield from range(first, min(first + batch, count))

if way in ("readahead", "no readahead", "hints"):
    import lmdb
    from dltune.systems.lmdb import ReadAhead
    import numpy
    from dltune.systems.lmdb.reader import fetch_binding
    fetch_binding.load()
    env = lmdb.open(path, readonly=True, lock=False, readahead=way == "readahead")
    if way == "hints":
        ahead = ReadAhead(path, mine(), ahead=told["ahead"])
else:
    from dltune.systems.lmdb import Options, Reader
    import numpy
    from dltune.systems.lmdb.reader import fetch_binding
    fetch_binding.load()
    with Reader(told["tiny"], batch=1, options=Options(node=False)) as reader:
        next(reader)  # what is imported at first use
    options = Options(direct=way != "cached", node=way != "each", **told["options"])
    reader = Reader(path, batch=batch, shuffle=told["shuffled"], rank=rank, size=size,
                    run=told["run"], iterations=count // (batch * size), options=options)

def stored():
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])

print("ready", flush=True)
sys.stdin.readline()
switches, before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw, stored()
began = time.perf_counter()
if way in ("readahead", "no readahead") and told["shuffled"] is None:
    # a training job's cursor, which passes over the other ranks' records
    with env.begin(buffers=True) as txn:
        cursor = txn.cursor()
        cursor.first()
        for place in range(count):
            if place // batch % size == rank:
                use(bytes(cursor.key()), bytes(cursor.value()))
            cursor.next()
elif way in ("readahead", "no readahead", "hints"):
    with env.begin() as txn:
        for key in ahead.keys() if way == "hints" else (b"%08d" % i for i in mine()):
            use(key, txn.get(key))
else:
    with reader:
        for one in reader:
            for record in one:
                use(*record)
print(json.dumps({
    "seconds": time.perf_counter() - began,
    "switches": resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - switches,
    "stored": stored() - before, "check": check, "records": records,
}))
'''


def made(folder: Path, size: int) -> Path:
    """A database of noise, in key order; indexed, as it lies there."""
    import lmdb

    path = folder / f"reading-{size}"
    if not path.exists():
        unfinished = folder / f".{path.name}"
        unfinished.mkdir(parents=True, exist_ok=True)
        noise = random.Random(size).randbytes(size + 8192)
        with lmdb.open(str(unfinished), map_size=RECORDS[size] * (size + 8192)) as env:
            per_commit = (128 << 20) // size
            for first in range(0, RECORDS[size], per_commit):
                with env.begin(write=True) as txn:
                    for i in range(first, min(first + per_commit, RECORDS[size])):
                        value = noise[i % 8192 : i % 8192 + size]
                        txn.put(b"%08d" % i, value, append=True)
        unfinished.rename(path)
    Index.open(path)
    return path


def tiny(folder: Path) -> None:
    """A database of one record beside the others, for what a reader does once in a process."""
    import lmdb

    if not (folder / "tiny").exists():
        (folder / "tiny").mkdir(parents=True)
        with lmdb.open(str(folder / "tiny")) as env, env.begin(write=True) as txn:
            txn.put(b"key", b"value")
    Index.open(folder / "tiny")


def make_cold(path: Path) -> None:
    """Raises RuntimeError when its pages stay in memory."""
    for _ in range(20):  # pages on their way to or from storage are not dropped
        drop(path)
        with open(path / "data.mdb", "rb") as file:
            found = cached(file.fileno())
        if found is None or found.now <= 1 << 16:
            break
        time.sleep(0.1)
    if found is None or found.now > 1 << 16:
        raise RuntimeError(f"{path} is not cold: {found}")


def run(
    nodes: Sequence[Path],
    way: str,
    size: int,
    count: int,
    shuffled: int | None,
    readers: int = 1,
    *,
    batch: int = BATCH,
    run: int | None = None,
    options: dict[str, int] | None = None,
) -> dict:
    """One cold run of `readers` on each of the nodes, each of which has the database at its path.
    Raises RuntimeError when it was not cold, or read wrong records."""
    every = len(nodes) * readers
    count -= count % (batch * every)
    for path in nodes:
        make_cold(path)
    job = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    children = []
    for rank in range(every):
        node, local = divmod(rank, readers)
        told = {
            "path": str(nodes[node]), "way": way, "batch": batch, "count": count, "rank": rank,
            "size": every, "shuffled": shuffled, "total": RECORDS[size], "run": run,
            "ahead": 16 << 20, "tiny": str(nodes[node].parent / "tiny"),
            "options": {"memory": 128 << 20, **(options or {})},
        }  # fmt: skip
        environment = {**os.environ, "DLTUNE_IO_JOB": f"{job}-{node}"}
        environment |= {"HOROVOD_LOCAL_RANK": str(local), "HOROVOD_LOCAL_SIZE": str(readers)}
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", READER, json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
        )
    for child in children:
        if child.stdout.readline() != "ready\n":
            raise RuntimeError("a reader could not start")
    began = time.perf_counter()
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    results = [json.loads(child.stdout.readline()) for child in children]
    seconds = time.perf_counter() - began
    for child in children:
        child.stdin.close()
        child.wait()
    return {
        "seconds": seconds,
        "switches": sum(result["switches"] for result in results),
        "stored": sum(result["stored"] for result in results),
        "check": sum(result["check"] for result in results) & 0xFFFFFFFF,
        "records": sum(result["records"] for result in results),
        "bytes": count * size,
    }


def training(folder: Path, store: Store, rounds: int) -> list[dict]:
    """A residual network that reads shuffled examples from the store, seconds for its steps."""
    import lmdb

    job = Path(__file__).parents[2] / "tests" / "systems" / "lmdb" / "lmdb_resnet.py"
    beneath = folder / "reading-examples"
    if not beneath.exists():
        unfinished = folder / ".reading-examples"
        unfinished.mkdir(parents=True, exist_ok=True)
        noise = random.Random(0)
        with lmdb.open(str(unfinished), map_size=1 << 30) as env, env.begin(write=True) as txn:
            for number in range(50_000):
                txn.put(b"%06d" % number, bytes([number % 10]) + noise.randbytes(24 * 24 * 3))
        unfinished.rename(beneath)
    Index.open(beneath)
    warm(beneath)
    path = store.path / beneath.name
    ways = ("py-lmdb", "hints", "dataset")
    found: dict[str, list[float]] = {way: [] for way in ways}
    losses = set()
    with tempfile.TemporaryDirectory() as place:
        for _ in range(rounds):
            for way in ways:
                drop(path)
                written = Path(place) / "losses"
                times = Path(place) / "times"
                command = [sys.executable, job, "--database", path, "--by", way, "--shuffle", "0"]
                command += ["--steps", "120", "--losses", written, "--times", times]
                one = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
                subprocess.run(
                    command, check=True, env={**os.environ, **one}, stderr=subprocess.DEVNULL
                )
                losses.add(written.read_text())
                stamps = [float(line) for line in times.read_text().split()]
                found[way].append(stamps[-1] - stamps[4])  # without what TensorFlow builds
    if len(losses) != 1:
        raise RuntimeError("the trainings differ")
    medians = {way: statistics.median(seconds) for way, seconds in found.items()}
    return [
        {
            "case": "training", "way": way, "seconds": medians[way],
            "spread": relative_spread(found[way]), "rate": 0.0, "switches": 0, "stored": 0,
            "faster": medians["py-lmdb"] / medians[way],
        }
        for way in ways
    ]  # fmt: skip


def case(name: str, folder: Path, store: Store | None, rounds: int, ways: list[str]) -> list[dict]:
    kind, _, rest = name.partition("-")
    size = SMALL if "small" in rest else LARGE
    readers = int(rest.rpartition("-")[2]) if kind == "strided" else 1
    tiny(folder)
    beneath = made(folder, size)
    local = "local" in rest
    path = beneath if local or store is None else store.path / beneath.name
    served = None if local or store is None else store.served
    if path != beneath:  # what lies beneath the store is in memory: its request is what takes time
        warm(beneath)
    runs: dict[str, list[dict]] = {way: [] for way in ways}
    checks = set()
    for number in range(rounds):
        for way in ways:
            shuffled = number if kind == "shuffled" else None
            if served:
                served()
            count = STRIDED if shuffled is None else SHUFFLED[size]
            done = run([path], way, size, count, shuffled, readers)
            if served:
                done["stored"] = served().bytes
            runs[way].append(done)
            checks.add((number if shuffled is not None else None, done["check"], done["records"]))
    if len(checks) != (rounds if kind == "shuffled" else 1):
        raise RuntimeError(f"{name}: the ways did not read the same: {checks}")
    plain = [way for way in ways if "readahead" in way]
    median = {way: statistics.median(r["seconds"] for r in runs[way]) for way in ways}
    better = min(plain, key=median.__getitem__) if plain else None
    rows = []
    for way in ways:
        switches = statistics.median(r["switches"] for r in runs[way])
        row = {
            "case": name, "way": way, "seconds": median[way],
            "spread": relative_spread([r["seconds"] for r in runs[way]]),
            "rate": runs[way][0]["bytes"] / median[way] / 1e6, "switches": switches,
            "stored": statistics.median(r["stored"] for r in runs[way]) / 1e6,
        }  # fmt: skip
        if better:
            of = statistics.median(r["switches"] for r in runs[better])
            row["faster"] = median[better] / median[way]
            row["fewer"] = of / max(switches, 1)
        rows.append(row)
    return rows


CASES = [
    "shuffled-local", "shuffled-store", "shuffled-small",
    *(f"strided-{n}" for n in (1, 2, 4, 8)), "strided-local-8",
    "training",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the databases: 2 GB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--json", type=Path, help="append each row here")
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        store = None
        names = options.cases or CASES
        if any("local" not in name for name in names):
            store = stack.enter_context(mounted(options.folder))
        for name in names:
            rows = (
                training(options.folder, store, options.rounds)
                if name == "training" and store
                else case(name, options.folder, store, options.rounds, options.ways.split(","))
            )
            for row in rows:
                print(
                    f"{row['case']:16} {row['way']:13} {row['seconds']:7.3f} s "
                    f"+-{row['spread']:4.0%} {row['rate']:7.1f} MB/s {row.get('faster', 0):6.2f}x "
                    f"{row['switches']:7.0f} switches {row.get('fewer', 0):6.1f}x fewer "
                    f"{row['stored']:6.0f} MB stored",
                    flush=True,
                )
                if options.json:
                    with options.json.open("a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
