"""A file in a store in user space, read in every way."""

from __future__ import annotations

from pathlib import Path

import slow_stores

from dltune.findings.data.reader_experiments import MIN_SPEEDUP
from dltune.schemas import io
from dltune.systems.lmdb.experiments.session import experiment

pytestmark = slow_stores.NEEDED


def test_a_file_on_it_in_every_way(tmp_path: Path) -> None:
    with slow_stores.stored(tmp_path) as store:
        document = experiment(store, [1, 4], 20.0, say=lambda _: None, tell=lambda _: None)
    assert io.check(document) == []
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
