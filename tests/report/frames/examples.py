"""A document of each kind of core, as files."""

from __future__ import annotations

import shutil
from pathlib import Path

import exhibits
import msgspec
import results
import roofed
import synthetic

from dltune.gate import verdicts
from dltune.plan.plan import with_sections
from dltune.schemas import bench, gate, io
from dltune.schemas.profile import Framework
from dltune.schemas.settings import Choice
from dltune.simulate import graph_document

SAMPLES = Path(__file__).parents[2] / "schemas" / "samples"
TORCH = Framework("pytorch", "2.13.0", "", "")
FUSED, CACHED = Choice("batch_norm", "fused"), Choice("onednn_primitives", "kept")


def written(folder: Path) -> dict[str, Path]:
    """By kind; those of one kind are told apart by what follows a colon."""
    profile = exhibits.profile()
    plan = exhibits.plan(profile, "per-type+co-run")
    result = results.gated("fail")
    made = {
        "dltune.profile": profile,
        "dltune.plan": plan,
        "dltune.plan:settings": with_sections(plan, threads=None, settings=exhibits.settings()),
        "dltune.bench": exhibits.bench(plan, profile, {"a": (0.1, 0.2), "b": (0.3, 0.4)}),
        "dltune.tune": searched(),
        "dltune.io": read(results.watched()),
        "dltune.io:experiment": read(results.read_in_every_way()),
        "dltune.diagnosis": results.diagnosed(),
        "dltune.roofs": roofed.roofs(),
        "dltune.gate": result,
        "dltune.gate-baseline": gate.Baseline(
            gate.BASELINE_SCHEMA, "2026-01-01", "0", synthetic.machine(), ("make",), "whole", None,
            (gate.Measured("time", "s", (0.5, 0.75)),), {"peak_rss": "not told, \"here\"\n"},
        ),
        "dltune.graph": graph_document.of_step(profile.steps[0], profile.ops),
        "dltune.machine": synthetic.machine(4),
    }  # fmt: skip
    found = {}
    for name, document in made.items():
        found[name] = folder / f"{name.replace(':', '-')}.json"
        found[name].write_bytes(msgspec.json.encode(document))
    for name in ("dltune.profile", "dltune.plan"):
        sample = next(SAMPLES.glob(f"{name.removeprefix('dltune.')}.json*"))
        found[f"{name}:sample"] = Path(shutil.copy(sample, folder))
    found["dltune.gate-history"] = folder / "history.jsonl"
    for _ in range(2):
        verdicts.append(found["dltune.gate-history"], verdicts.entry(result, paired=True))
    return found


def searched() -> bench.Tune:
    trials = (
        bench.Trial((FUSED,), (), "helps", (0.75, 0.5)),
        bench.Trial((FUSED, CACHED), (FUSED,), "undecided", (), "the budget was spent"),
    )
    return bench.Tune(
        bench.TUNE_SCHEMA, "2026-01-01", "0", ("job",), "m", TORCH, (FUSED, CACHED), 9.0, trials
    )


def read(found: io.Io) -> io.Io:
    """With the storage and the process that it speaks of."""
    storage = io.Storage("8:1", "/data", "/dev/sda1", "ext4", 2**17, True, "none", 64, True)
    watch = found.watch
    if watch:
        thread = io.Thread(7, "reader", 9.0, 90, 1.0, 0.5, None, 9, 1, 0.5, 0.25, 1, 2)
        process = io.Process(7, 1, "job", "me", 9.0, False, (thread,), 0, 1, 2, None, None, None)
        watch = msgspec.structs.replace(watch, processes=(process,))
    experiment = found.experiment
    if experiment:
        experiment = msgspec.structs.replace(experiment, device="8:1")
    return msgspec.structs.replace(found, storage=(storage,), watch=watch, experiment=experiment)
