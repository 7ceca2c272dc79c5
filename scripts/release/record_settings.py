"""Record what every combination of some settings does to a job, for scripts/bench/bench_search.py.

    python scripts/release/record_settings.py OUT.json.gz --values allocator=glibc-keep,tcmalloc \\
        --values threads=2x1,1x2 [--rounds 12] [--limit 280] -- CMD...

All combinations of the values given, and of leaving each setting as the job has it. A few at a time
stand ready beside the job as given and take turns with it, so that what the machine does to one
round it does to all of them. What is in OUT already is not measured again: with --limit, call it
until it says that nothing is missing.

--values nothing=1,2,3,4,5: as many copies of the job, each with an environment variable that nobody
reads. `bench_search.py --nothing` draws trials from them.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dltune import __version__
from dltune.plan.settings import space
from dltune.plan.settings.setting import Circumstances, Means, Setting
from dltune.plan.settings.show import in_words
from dltune.schemas.settings import Choice
from dltune.system import topology
from dltune.tune.candidates import AS_GIVEN, Candidate, Refused
from dltune.tune.evaluation import Measured
from dltune.turns.rounds import rotated

PATIENCE = 120.0
# rounds, of which a median and a spread are worth something
LEAST = 6
# candidates that stand beside the job as given
BATCH = 5
NOTHING = Setting(
    name="nothing",
    what="Sets an environment variable that nobody reads.",
    helps="No job.",
    meanings={"1": "set"},
    kind="exact",
    source="none",
    ways=lambda _: {"1": Means(environment={"DLTUNE_NOBODY_READS": "1"})},
)


def combinations(values: dict[str, list[str]]) -> Iterator[Candidate]:
    """All but the job as given."""
    every = [[None, *(Choice(name, value) for value in found)] for name, found in values.items()]
    for chosen in itertools.product(*every):
        if candidate := tuple(sorted(choice for choice in chosen if choice)):
            yield candidate


def singles(values: dict[str, list[str]]) -> Iterator[Candidate]:
    for name, found in values.items():
        yield from ((Choice(name, value),) for value in found)


def plain(candidate: Candidate) -> dict[str, str]:
    return {choice.setting: choice.value for choice in candidate}


def measured(
    here: Circumstances, candidates: Sequence[Candidate], rounds: int, ends: float
) -> dict[str, Any]:
    """Starts the candidates beside the job as given, lets them take turns, ends them. After `ends`
    it leaves rounds out, down to LEAST.

    Microseconds of a step by round and candidate; seconds of a start and of a turn, all in all;
    what could not be measured, and why.
    """
    standing: list[Candidate] = []
    starts: list[float] = []
    steps: list[dict[Candidate, float]] = []
    refused: dict[Candidate, Refused] = {}
    evaluator = Measured(here, budget=1e6, patience=PATIENCE, verbose=False)
    with evaluator:
        for candidate in (AS_GIVEN, *candidates):
            began = time.monotonic()
            if found := evaluator.start(candidate):
                refused[candidate] = found
            else:
                starts.append(time.monotonic() - began)
                standing.append(candidate)
        began = time.monotonic()
        for number in range(rounds):
            if number >= LEAST and time.monotonic() > ends:
                break
            taken = evaluator.round(rotated(standing, number))
            for candidate, seconds in taken.items():
                if isinstance(seconds, Refused):
                    refused[candidate] = seconds
                    standing.remove(candidate)
            steps.append({c: s for c, s in taken.items() if not isinstance(s, Refused)})
        turns = (time.monotonic() - began) / sum(map(len, steps))
    if AS_GIVEN in refused:
        raise SystemExit(refused[AS_GIVEN].why)
    for candidate, found in refused.items():
        print(f"{in_words(candidate)}: {found.why}", flush=True)
    return {
        "candidates": [plain(candidate) for candidate in standing],
        "start_seconds": [round(seconds, 2) for seconds in starts],
        "turn_seconds": round(turns, 3),
        "steps": [[round(one[c] * 1e6) for c in standing] for one in steps],
        "refused": [
            {"candidate": plain(candidate), "verdict": found.verdict, "why": found.why}
            for candidate, found in refused.items()
        ],
    }


def known(table: dict[str, Any]) -> list[dict[str, str]]:
    """Candidates that a table has something on."""
    found = [candidate for batch in table["batches"] for candidate in batch["candidates"]]
    return found + [one["candidate"] for batch in table["batches"] for one in batch["refused"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--values", action="append", required=True, metavar="SETTING=VALUE,VALUE")
    parser.add_argument("--singles", action="store_true", help="each value alone")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds of this call")
    parser.add_argument("job", nargs="+")
    args = parser.parse_args()
    space.SPACE = (*space.SPACE, NOTHING)
    values = {}
    for text in args.values:
        name, _, listed = text.partition("=")
        values[name] = listed.split(",")
    machine = topology.local()
    here = Circumstances(machine, tuple(args.job), dict(os.environ))
    began = time.monotonic()
    table: dict[str, Any] = {
        "about": " ".join(args.job),
        "machine": f"{len(machine.cores)} cores: {machine.name}",
        "created": time.strftime("%Y-%m-%d"),
        "dltune": __version__,
        "values": values,
        "batches": [],
    }
    if args.out.exists():
        table = json.loads(gzip.decompress(args.out.read_bytes())) | {"values": values}
    longest = 0.0
    wanted = singles if args.singles else combinations
    while missing := [c for c in wanted(values) if plain(c) not in known(table)]:
        now = time.monotonic()
        if now - began + longest > args.limit:
            print(f"{len(missing)} are still missing: call this again")
            return
        table["batches"].append(measured(here, missing[:BATCH], args.rounds, began + args.limit))
        args.out.write_bytes(gzip.compress(json.dumps(table).encode(), mtime=0))
        longest = max(longest, time.monotonic() - now)
        print(f"{len(missing)} were missing; a batch took {longest:.0f} s", flush=True)
    print("nothing is missing")


if __name__ == "__main__":
    main()
