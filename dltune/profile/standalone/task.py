"""What the standalone job is given: ops, where they came from, at which batch size to run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import some
from dltune.profile.standalone.batch import batch_of, channels_of, inputs_of, with_batch
from dltune.schemas import graph
from dltune.schemas.profile import Op, Profile

SCHEMA = "dltune.standalone/1"
# bytes of a job that has imported TensorFlow
BASE = 600 << 20
# ops that compute nothing, or that only mean something in a graph
_NOTHING = ("_Arg", "_Retval", "Const", "Identity", "NoOp")


class Standalone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One op to run. `original`: its key where it was measured, with `output_bytes` and `measured`
    examples in a step; `key` and `batch`: what is wanted now."""

    key: str
    original: str
    output_bytes: int
    measured: int
    batch: int


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    ops: tuple[Standalone, ...]

    @property
    def onednn(self) -> bool:
        """Whether the ops ran with oneDNN's kernels."""
        return any(op.key.startswith("_Mkl") for op in self.ops)

    def memory(self) -> tuple[int, str]:
        """About how many bytes the job needs, and the op that it needs them for.

        Inputs are views of one buffer, which is copied once when it is filled; of the outputs,
        only that of the op that runs is there.
        """
        return max(
            (
                BASE
                + 2 * sum(tensor.bytes for tensor in inputs_of(op.key))
                + op.output_bytes * op.batch // op.measured,
                op.key,
            )
            for op in self.ops
        )


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job's answer: by key, why an op was left out."""

    schema: str
    left: dict[str, str]


def load(path: Path) -> Task:
    return documents.read(path, Task, SCHEMA, lambda _: [])


def load_done(path: Path) -> Done:
    return documents.read(path, Done, SCHEMA, lambda _: [])


def task(profile: Profile, batches: Sequence[int]) -> Task:
    """All ops of the profile that dltune controls, at these batch sizes (none: as measured).

    An op that does not depend on the batch size is there once. Raises UsageError when the profile
    has no such op, or no batch dimension.
    """
    ops = [op for op in profile.ops if op.times and op.type not in _NOTHING]
    if not ops:
        raise UsageError(
            "no op of this profile can run standalone",
            remedy="profile the job again, until dltune tries thread counts",
        )
    measured = batch_of(ops)
    channels = channels_of(ops)
    found: dict[str, Standalone] = {}
    for batch in batches or (measured,):
        for op in ops:
            key = op.key if batch == measured else _at(op, measured, batch, channels)
            found.setdefault(key, Standalone(key, op.key, op.output_bytes, measured, batch))
    return Task(SCHEMA, tuple(found.values()))


def _at(op: Op, measured: int, batch: int, channels: frozenset[int]) -> str:
    try:
        return str(with_batch(graph.parse_key(op.key), measured, batch, channels=channels))
    except ValueError:
        return op.key  # the job tells why it cannot make this op up


def notes(task: Task, left: Mapping[str, str], measured: Iterable[str]) -> list[str]:
    """Sentences: how many ops ran, and which did not, or came back under another key."""
    came = set(measured)
    wanted = {op.key for op in task.ops}
    ran = wanted & came
    sentences = [f"{len(ran)} of {len(wanted)} ops ran standalone with the requested keys"]
    for reason, count in Counter(left.values()).most_common():
        kinds = sorted({key.split("(")[0] for key, why in left.items() if why == reason})
        ops = "1 op was" if count == 1 else f"{count} ops were"
        sentences.append(f"{ops} skipped: {reason} ({some(kinds, 4)})")
    if other := sorted(wanted - came - left.keys()):
        sentences.append(
            f"TensorFlow rewrote {len(other)} of these ops differently, so their keys changed: "
            f"{some(other, 4)}"
        )
    return sentences
