"""A file in a store in user space, read in every way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import slow_stores

from dltune.base.documents import struct_faults
from dltune.findings.data.reader_experiments import MIN_SPEEDUP
from dltune.systems.lmdb.experiments import session
from dltune.systems.lmdb.experiments.runs import Way, ways
from dltune.systems.lmdb.experiments.session import experiment
from dltune.watch.files import storage

pytestmark = slow_stores.NEEDED


def test_a_file_on_it_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_it(*what: object, **how: object) -> list[Way]:
        """With hints there is as much time as it takes to read all: what a busy machine adds is
        little beside 20 seconds of one request after the other."""
        found = ways(*what, **how)  # type: ignore[arg-type]
        return [
            replace(w, task=replace(w.task, seconds=60.0)) if w.task.ahead else w for w in found
        ]

    monkeypatch.setattr(session, "ways", all_of_it)
    # requests that a busy store has not answered yet keep their pages
    monkeypatch.setattr(storage, "PATIENCE", 120.0)
    monkeypatch.setattr(storage, "LOOKS", 60)
    with slow_stores.stored(tmp_path) as store:
        document = experiment(store, [1, 4], 20.0, say=lambda _: None, tell=lambda _: None)
    assert struct_faults("", document) == []
    found = document.experiment
    assert found is not None
    assert any(
        sentence.startswith("the kernel does not count reads from fuse")
        for sentence in document.unseen
    )
    # a request that waits can be joined by others: hints pay, whatever the machine's load; against
    # read-ahead only where the store's own threads have a core to run on
    hinted = next(run for run in found.shuffled if run.ahead)
    mapped = {r.advised: r for r in found.shuffled if r.method == "mmap" and not r.ahead}
    assert hinted.throughput.median > 2 * mapped[True].throughput.median
    pays = hinted.throughput.median >= MIN_SPEEDUP * max(
        r.throughput.median for r in mapped.values()
    )
    assert pays == any("with hints for the next" in f.title for f in document.findings)
