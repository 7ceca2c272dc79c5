"""Records for PyTorch's DataLoader.

`dltune.systems.lmdb.Records` itself is a data set for samplers of PyTorch's own:

    DataLoader(Records("train.lmdb"), batch_size=32, shuffle=True, collate_fn=decode)

`Batches` is one that reads ahead, in the order of `Reader`. This module imports PyTorch, which
dltune does not depend on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from dltune.base.errors import UsageError
from dltune.systems.lmdb.reader.reader import Reader, Record


class Batches(IterableDataset):  # type: ignore[misc]
    """Lists of `batch` records of this rank, `iterations` of them.

        DataLoader(Batches("train.lmdb", batch=32, iterations=1000), batch_size=None)

    For a loader without workers, whose reading ahead is the reader's own thread: it needs none.
    """

    def __init__(self, path: Path | str, *, batch: int, iterations: int, **arguments: Any) -> None:
        """`arguments` are `Reader`'s; raises UsageError as it does."""
        super().__init__()
        self._arguments = {"batch": batch, "iterations": iterations, **arguments}
        self._path = path
        Reader(path, **self._arguments).close()  # wrong arguments are reported here

    def __len__(self) -> int:
        return int(self._arguments["iterations"])

    def __iter__(self) -> Iterator[list[Record]]:
        """Raises UsageError in a loader's worker: each would read all of it."""
        if get_worker_info() is not None:
            raise UsageError(
                "Batches cannot be read in a DataLoader worker",
                remedy="pass num_workers=0 to the DataLoader",
            )
        with Reader(self._path, **self._arguments) as reader:
            yield from reader
