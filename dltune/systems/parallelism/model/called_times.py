"""Times of the operators of a recorded step of PyTorch's: by the calls that are theirs.

Between two layers, such as in an activation, time counts as the earlier layer's. Backward calls
come to layers in the opposite order: each belongs to the nearest layer, from the previous call's
layer on, that read one of the storages it reads; without such a layer, to the previous call's
layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dltune.analysis.aten_flops import kind_of
from dltune.schemas.graph import aten_name
from dltune.schemas.profile import Op, Profile
from dltune.schemas.pytorch_step import Calls, Layer
from dltune.systems.parallelism.model.called import layers_of
from dltune.systems.parallelism.model.profiled import Measured, Seconds
from dltune.systems.parallelism.schemas.operators import Operators


def measured(calls: Calls, operators: Operators, profile: Profile) -> Measured:
    """Return the times. `operators`: of these calls, as `called` has them. Calls were timed under
    the job's threads; the profile's cases give the times of ops of their kind on one thread, and at
    their best."""
    layers = layers_of(calls)
    slower = _Slower(profile.ops, profile.settings.intra)
    forward = [Seconds()] * len(layers)
    backward = [Seconds()] * len(layers)
    update = rest = Seconds()
    over = max((at for at, one in enumerate(calls.calls) if one.phase == "backward"), default=-1)
    of = _owners(calls, layers)
    for at, one in enumerate(calls.calls):
        took, layer = slower.seconds(one.name, one.seconds), of[at]
        if one.phase == "aside" and at > over:
            update += took
        elif layer is None:
            rest += took
        elif one.phase == "backward":
            backward[layer] += took
        else:
            forward[layer] += took
    return Measured(operators, tuple(forward), tuple(backward), update, rest, ())


def _owners(calls: Calls, layers: Sequence[Layer]) -> list[int | None]:
    """By call the layer, by number; None: it is none's."""
    uses: defaultdict[int, list[int]] = defaultdict(list)  # of a storage, the layers
    for number, layer in enumerate(layers):
        inner = calls.calls[layer.first : layer.last]
        for storage in {s for one in inner for s in one.reads}:
            uses[storage].append(number)
    begin = {layer.first: number for number, layer in enumerate(layers)}
    found: list[int | None] = []
    forward: int | None = None
    backward = len(layers) - 1
    for at, one in enumerate(calls.calls):
        forward = begin.get(at, forward)
        if one.phase == "backward":
            near = (n for storage in one.reads for n in uses[storage] if n <= backward)
            backward = max(near, default=backward)
            found.append(backward)
        else:
            found.append(forward if one.phase == "forward" else None)
    return found


class _Slower:
    """Times of ops of a kind on one thread, and at their best, over those on the threads that the
    job has; of a kind without cases, those of all ops together."""

    def __init__(self, ops: Iterable[Op], threads: int) -> None:
        own: defaultdict[str, float] = defaultdict(float)
        alone: defaultdict[str, float] = defaultdict(float)
        best: defaultdict[str, float] = defaultdict(float)
        for op in ops:
            if not op.times:
                continue
            least = min(one.min for one in op.times)
            for kind in (kind_of(aten_name(op.type)), _ALL):
                own[kind] += op.count * _at(op, threads, least)
                alone[kind] += op.count * _at(op, 1, least)
                best[kind] += op.count * least
        self._ratios = {kind: (alone[kind] / own[kind], best[kind] / own[kind]) for kind in own}

    def seconds(self, call: str, took: float) -> Seconds:
        kind = kind_of(aten_name(call.removeprefix("aten.").split(".")[0]))  # aten.add_.Tensor
        alone, best = self._ratios.get(kind) or self._ratios.get(_ALL) or (1.0, 1.0)
        return Seconds(took * alone, took * best)


_ALL = ""


def _at(op: Op, threads: int, otherwise: float) -> float:
    return min((one.min for one in op.times if one.threads == threads), default=otherwise)
