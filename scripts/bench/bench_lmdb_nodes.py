"""Nodes that read one LMDB file from a shared disk: emulated on this machine. For root.

    python scripts/bench/bench_lmdb_nodes.py speed --folder FOLDER [--nodes 2,4,8,16] [--rounds 3]
    python scripts/bench/bench_lmdb_nodes.py seeks --folder FOLDER [--nodes 4,8] [--tokens 0,1,2,4]

Each node is a mount of a FUSE file system, with a page cache of its own, and has one reader. All
mounts read one disk of 25 MB/s, one request after the other. Records have 3 KB, as CIFAR-10's.

`speed`: a cursor of py-lmdb on each node, which passes over the other nodes' records as Caffe's
data layer does, and `dltune.systems.lmdb.Reader`, in turns: batch by batch, and with runs of
several batches (LMDBIO's COAL). Seconds until all nodes are done, medians.

`seeks`: the disk takes 8 ms more for a request that does not go on where the last one ended. Runs
of several batches, read with so many tokens (LMDBIO's STAG; 0: none). Requests, those among them
that made the disk seek, and seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from bench_lmdb import warm
from bench_lmdb_reading import RECORDS, SMALL, made, run, tiny
from slow_store import mounted

from dltune.systems.lmdb.reader.tokens import SUFFIX

RATE, SEEK = 25e6, 8e-3
BATCH = 32
COUNT = 12_288  # records of each run, of all nodes together: 48 MB in pages
RUN = 8 * BATCH  # 1 MB
LONG_RUN, SLOT = 32 * BATCH, 5 << 20  # 4 MB, and memory for that
WAYS = (("py-lmdb", "readahead", None), ("batches", "cached", None), ("runs", "cached", RUN))


def speed(folder: Path, nodes: int, rounds: int) -> None:
    with mounted(folder, 0.0, nodes=nodes, rate=RATE) as store:
        paths = [path / f"reading-{SMALL}" for path in store.paths]
        seconds: dict[str, list[float]] = {name: [] for name, _, _ in WAYS}
        read: dict[str, int] = {}
        for _ in range(rounds):
            for name, way, length in WAYS:
                store.served()
                done = run(paths, way, SMALL, COUNT, None, batch=BATCH, run=length)
                seconds[name].append(done["seconds"])
                read[name] = store.served().bytes
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    for name, found in seconds.items():
        print(
            f"{nodes:2} nodes  {name:8} {medians[name]:6.2f} s ({min(found):.2f} to "
            f"{max(found):.2f})  {read[name] / 1e6:6.1f} MB from the disk  "
            f"{medians['py-lmdb'] / medians[name]:5.2f}x",
            flush=True,
        )


def seeks(folder: Path, nodes: int, rounds: int, tokens: list[int]) -> None:
    with mounted(folder, 0.0, nodes=nodes, seek=SEEK, rate=RATE) as store:
        paths = [path / f"reading-{SMALL}" for path in store.paths]
        for count in tokens:
            lines = []
            for number in range(-1, rounds):  # the first one finds the index, and does not count
                store.served()
                options = {"memory": 2 * SLOT, "parallel": 1}
                options |= {"stagger": count} if count else {}
                done = run(
                    *(paths, "direct", SMALL, 4 * COUNT, None),
                    **{"batch": BATCH, "run": LONG_RUN, "options": options},
                )
                if number >= 0:
                    lines.append((*store.served(), done["seconds"]))
            requests, _, sought, seconds = (
                statistics.median(one) for one in zip(*lines, strict=True)
            )
            print(
                f"{nodes:2} nodes  {count or 'no'} tokens  {requests:6.0f} requests  "
                f"{sought:6.0f} seeks  {sought / requests:.2f} a request  {seconds:6.2f} s",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, nodes in (("speed", "2,4,8,16"), ("seeks", "4,8")):
        one = verbs.add_parser(verb)
        one.add_argument("--folder", type=Path, required=True, help="for the database: 1 GB")
        one.add_argument("--nodes", default=nodes)
        one.add_argument("--rounds", type=int, default=3)
        if verb == "seeks":
            one.add_argument("--tokens", default="0,1,2,4")
    options = parser.parse_args()
    made(options.folder, SMALL)
    tiny(options.folder)
    path = options.folder / f"reading-{SMALL}"
    warm(path)
    with tempfile.NamedTemporaryFile(prefix="dltune-") as locks:
        # the mounts cannot be written: all nodes lock one file outside them
        link = path / f"data.mdb{SUFFIX}"
        link.unlink(missing_ok=True)
        link.symlink_to(locks.name)
        try:
            for nodes in map(int, options.nodes.split(",")):
                if options.verb == "speed":
                    speed(options.folder, nodes, options.rounds)
                else:
                    tokens = [*map(int, options.tokens.split(","))]
                    seeks(options.folder, nodes, options.rounds, tokens)
        finally:
            link.unlink()


if __name__ == "__main__":
    assert RECORDS[SMALL] >= 4 * COUNT
    main()
