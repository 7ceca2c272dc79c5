"""What a profile of a rank tells: when its gradients are there, and what transfers take.

DDP marks what it does with a gradient that has been computed, and PyTorch each sum that is asked
for: both are nodes of the step's chain.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.documents import opkey
from dltune.documents.profile import ALLREDUCE, Node, Op, Profile, Step
from dltune.errors import UsageError
from dltune.overlap.bins import Cost

# puts a gradient where it travels from; of such of a step there is one for each gradient
_COMPUTED = re.compile(r"torch::distributed::reducer::(mul_out|mul|div_|copy_)")
# of two ranks over gloo on one machine, where sums of one size alone tell nothing of it
LATENCY = 3e-4


@dataclass(frozen=True)
class Gradients:
    """Of one model, in the order in which a step has them.

    `sizes`: bytes, `ready`: seconds from the step's begin, `buckets`: how many travel together in
    each bucket, `backward`: seconds until the backward pass is over.
    """

    sizes: tuple[int, ...]
    ready: tuple[float, ...]
    buckets: tuple[int, ...]
    backward: float

    @property
    def runs(self) -> tuple[tuple[int, ...], ...]:
        """The places of those that travel together."""
        ends = [sum(self.buckets[: k + 1]) for k in range(len(self.buckets))]
        return tuple(tuple(range(e - n, e)) for e, n in zip(ends, self.buckets, strict=True))


def gradients(step: Step, ops: Sequence[Op]) -> Gradients | None:
    """None where the step's ranks exchange none. Raises UsageError where they travel in another way
    than those of one model in the order in which they are there."""
    sizes: list[int] = []
    ready: list[float] = []
    buckets: list[int] = []
    waiting: list[int] = []
    for node in step.nodes:
        if _COMPUTED.fullmatch(node.type):
            waiting.append(_bytes(node, ops))
            sizes.append(waiting[-1])
            ready.append(_end(node))
        elif node.type == ALLREDUCE and waiting:  # else it is the script's own
            if sum(waiting) != node.output_bytes:
                raise UsageError(
                    f"the gradients of step {step.name!r} do not travel in the order in which they "
                    "are there: DDP keeps that order for one model without unused parameters"
                )
            buckets.append(len(waiting))
            waiting = []
    if not sizes:
        return None
    if waiting:
        raise UsageError(f"{len(waiting)} gradients of step {step.name!r} travel in no bucket")
    backward = [_end(node) for node in step.nodes if node.name.startswith("backward/")]
    return Gradients(tuple(sizes), tuple(ready), tuple(buckets), max(backward))


def cost(profile: Profile) -> tuple[Cost, str]:
    """What a transfer takes, and the sentence on how that is known.

    By the fastest of each size, for most wait for a rank that is late. Raises UsageError where no
    transfer was seen.
    """
    fastest: dict[int, float] = defaultdict(lambda: math.inf)
    for step in profile.steps:
        for one in step.collectives:
            fastest[one.bytes] = min(fastest[one.bytes], one.took.min)
    if not fastest:
        raise UsageError(
            "the profile has no transfers between ranks",
            remedy="profile the job's ranks, as in dltune profile -- torchrun ... train.py",
        )
    if len(fastest) == 1:
        ((bytes, seconds),) = fastest.items()
        latency = min(LATENCY, seconds)
        return Cost(latency, (seconds - latency) / bytes), (
            f"all transfers were of {bytes} bytes, so that {latency * 1e6:.0f} us of one are "
            "assumed to be the same for any size"
        )
    sizes = sorted(fastest)
    line = statistics.linear_regression(sizes, [fastest[size] for size in sizes])
    found = Cost(line.intercept, line.slope)
    if line.slope < 0:
        found = Cost(statistics.fmean(fastest.values()), 0.0)
    elif line.intercept < 0:
        through = sum(size * fastest[size] for size in sizes) / sum(size**2 for size in sizes)
        found = Cost(0.0, through)
    return found, (
        f"a transfer takes {found.latency * 1e6:.0f} us and {found.per_byte * 1e9:.3g} ns a byte "
        f"(the fastest of each of {len(sizes)} sizes)"
    )


def _bytes(node: Node, ops: Sequence[Op]) -> int:
    """Raises UsageError where they are not told."""
    try:
        sent = 0 if node.op is None else opkey.parse(ops[node.op].key).inputs[0].bytes
    except (ValueError, IndexError):
        sent = 0
    if not sent:
        raise UsageError(f"the profile does not tell how large the gradient of {node.name} is")
    return sent


def _end(node: Node) -> float:
    return node.end or 0.0
