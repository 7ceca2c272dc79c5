"""The ops of a model put together into operators, each with what it can be divided by.

An op that mixes positions (a product, a convolution, a pooling, a reduction but over samples, a
concatenation) begins an operator, and so does one that joins two of them; what works position by
position, and what only moves or normalises over the samples, goes with the operator that it reads.
What is not understood begins one that can be divided by samples at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from dltune.analysis.flops import ELEMENTWISE, REDUCTIONS
from dltune.analysis.keys import Key
from dltune.analysis.windows import layout, sliding
from dltune.documents.operators import Kind
from dltune.errors import UsageError
from dltune.graph.views import VIEWS
from dltune.parallelism.drafts import Drafts, Length
from dltune.parallelism.pieces import View, broadcast, permuted, reduced, reshaped, sizes
from dltune.parallelism.roles import Roles
from dltune.parallelism.step_view import StepView, Tensor

Shape = tuple[int, ...]
_EACH = frozenset(
    {
        *ELEMENTWISE,
        *VIEWS,
        *("AccumulateN", "AddN", "Cast", "CheckNumerics", "LogicalAnd", "LogicalNot", "LogicalOr"),
        *("OnesLike", "UnaryOpsComposition", "ZerosLike", "FusedBatchNorm", "FusedBatchNormEx"),
    }
)
_RESHAPES = ("Reshape", "Squeeze", "ExpandDims")
_ROWS = ("Softmax", "LogSoftmax")
_ENTROPY = ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits")
_POOLS = ("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
_CONVOLUTIONS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")
_GATHERS = ("Gather", "GatherV2", "ResourceGather")


class Layers:
    """`drafts`: the operators; `operator`: of each op of the model the number of its own. `batch`:
    the samples of a step: the first size of all that hands it examples."""

    def __init__(self, view: StepView, roles: Roles) -> None:
        self.view, self.roles = view, roles
        self.drafts = Drafts()
        self.operator: dict[int, int] = {}
        self.tensors: dict[Tensor, tuple[int, View, Shape]] = {}
        self.batch = self._batch()
        self.weights = {node for found in roles.weights.values() for node in found}
        self.handles = set(roles.weights)
        self.from_data = view.downstream(roles.data)
        for node in view.order:
            if node in roles.data and node in roles.model:
                self._examples(node)
            elif node in roles.model and node in self.from_data:
                self._add(node)
        self._rest()

    def _batch(self) -> int:
        first = {
            shape[0]
            for (node, _), shape in self.view.shapes.items()
            if node in self.roles.data and shape
        }
        if len(first) != 1:
            raise UsageError(
                f"which size of step {self.view.step.name or self.view.step.signature} counts its "
                f"samples is not known: what it is handed begins with {sorted(first)}"
            )
        return first.pop()

    def _examples(self, node: int) -> None:
        for slot in range(max(1, len(self.view.nodes[node].outputs))):
            shape = self.view.shapes.get((node, slot))
            if shape is None:
                continue
            axes = [[Length(size, "attribute" if n else "sample")] for n, size in enumerate(shape)]
            number, view = self.drafts.begin(node, axes, (), data=True)
            self.tensors[node, slot] = number, view, shape
            self.operator.setdefault(node, number)

    def _add(self, node: int) -> None:
        family, key = self.view.families[node], self.view.keys[node]
        read = [(t, self.tensors[t]) for t in self.view.reads(node) if t in self.tensors]
        if not read:
            raise UsageError(f"{self.view.nodes[node].name!r} reads nothing that is understood")
        done = False
        if key is not None:
            if family in _EACH or family in REDUCTIONS or family in ("Pad", "PadV2", "Transpose"):
                done = self._fold(node, family, key)
            else:
                rule = _RULES.get(family)
                done = rule is not None and rule(self, node, key)
        if not done:
            self._opaque(node)

    # what goes with the operator that it reads

    def _fold(self, node: int, family: str, key: Key) -> bool:
        inputs = [(t, self.tensors.get(t)) for t in self.view.reads(node)]
        known = [found for _, found in inputs if found]
        if family in REDUCTIONS:
            return self._reduce(node, key)
        if family in ("Transpose", "Pad", "PadV2") or family in _RESHAPES:
            return self._move(node, family, known)
        shape = self._shape(node, 0) or broadcast([t.shape for t in key.inputs])
        if shape is None:
            return False
        if family.startswith("FusedBatchNorm"):
            known, shape = known[:1], key.inputs[0].shape
        full = [one for one in known if not self._statistic(one)]
        number = max(one for one, _, _ in full or known)
        learns = any(before in self.weights for before, _ in self.view.reads(node))
        others = {one for one, _, _ in known} - {number}
        if full and ((self.drafts[number].data and learns) or max(others, default=0) > number):
            return self._joined(node, full, shape)
        views = [view for one, view, _ in full or known if one == number or not full]
        rank = len(shape)
        views = [((),) * (rank - len(view)) + view for view in views]
        mixed = tuple(next(filter(None, column), ()) for column in zip(*views, strict=True))
        aligned: View | None = mixed
        if any(
            axis and axis != mine
            for view in views
            for axis, mine in zip(view, mixed, strict=True)
            if full
        ):
            aligned = None
        for one, view, _ in full:
            if one != number and aligned is not None:
                known_there = one in self.drafts[number].inputs
                aligned = self.drafts.align(number, aligned, one, view) if known_there else None
        if aligned is None:
            return self._joined(node, full, shape)
        if full:
            aligned = self.drafts.widened(number, aligned, shape)
        self._keep(node, number, aligned, shape)
        return True

    def _statistic(self, tensor: tuple[int, View, Shape]) -> bool:
        """Whether it was reduced over samples: a few numbers, which each part has of its own, as
        replicas in data parallelism have."""
        number, view, _ = tensor
        dimensions = self.drafts[number].dimensions
        there = {piece.dim for axis in view for piece in axis}
        return any(one.kind == "sample" and n not in there for n, one in enumerate(dimensions))

    def _joined(self, node: int, known: Sequence[tuple[int, View, Shape]], shape: Shape) -> bool:
        """A new operator, position by position."""
        views = [((),) * (len(shape) - len(view)) + view for _, view, _ in known]
        axes = []
        for column in zip(*views, strict=True):
            widest = max(column, key=len)
            lengths: list[Length] = []
            for (operator, _, _), axis in zip(known, column, strict=True):
                if axis and sizes(axis) == sizes(widest):
                    more = self.drafts.inherited(operator, axis)
                    for length, other in zip(lengths, more, strict=False):
                        length.reads += other.reads
                        if other.kind == "sample":
                            length.kind = "sample"
                    lengths = lengths or more
            axes.append(lengths)
        self._begin(node, axes, shape)
        return True

    def _move(self, node: int, family: str, known: Sequence[tuple[int, View, Shape]]) -> bool:
        number, view, given = known[0]
        wanted = self._shape(node, 0)
        moved: View | None = None
        if wanted is not None and len(known) == 1:
            if family in _RESHAPES:
                moved = reshaped(view, wanted)
            elif family == "Transpose":
                moved = permuted(view, given, wanted)
            elif len(given) == len(wanted):
                moved = _padded(view, given, wanted)
        if moved is None or wanted is None:
            return False
        self._keep(node, number, moved, wanted)
        return True

    def _reduce(self, node: int, key: Key) -> bool:
        """Over samples too: statistics, which go with what they are of, as does what no part has
        but whole. Else a new operator."""
        found = self.tensors.get(self.view.reads(node)[0])
        wanted = self._shape(node, 0)
        if found is None or wanted is None:
            return False
        number, view, given = found
        keep = key.true("keep_dims")
        count = math.prod(key.inputs[1].shape) if len(key.inputs) > 1 else len(given)
        axes = reduced(given, wanted, count, keep=keep)
        if axes is None:
            return False
        dimensions = self.drafts[number].dimensions
        left = tuple(() if n in axes else axis for n, axis in enumerate(view))
        gone = [p for n in axes for p in view[n]]
        kinds = {dimensions[piece.dim].kind for piece in gone}
        if not kinds - {"whole"} or "sample" in kinds:
            shown = left if keep else tuple(a for n, a in enumerate(left) if n not in axes)
            self._keep(node, number, shown, wanted)
            return True
        kept = [axis for n, axis in enumerate(left) if keep or n not in axes]
        self._begin(node, [self.drafts.inherited(number, axis) for axis in kept], wanted)
        return True

    # what begins an operator

    def _rows(self, node: int, key: Key) -> bool:
        """Softmax: the last axis together."""
        number, view, shape = self._first(node)
        axes = [self.drafts.inherited(number, axis) for axis in view]
        self._begin(node, [*axes[:-1], _together(axes[-1])], shape)
        return True

    def _entropy(self, node: int, key: Key) -> bool:
        number, view, shape = self._first(node)
        axes = [self.drafts.inherited(number, axis) for axis in view[:-1]]
        for other, found in enumerate(self._data_inputs(node)[1:], 1):
            for axis, its in zip(axes, found[1], strict=False):
                if [one.size for one in axis] == [p.size for p in its]:
                    for length, piece in zip(axis, its, strict=True):
                        length.reads.append((found[0], piece))
            del other
        self._begin(node, axes, shape[:-1])
        return True

    def _window(self, node: int, key: Key) -> bool:
        number, view, given = self._first(node)
        slide = sliding(key, len(given))
        pool = self.view.families[node] in _POOLS
        if slide is None or len(view) != len(given) or (not pool and not self._weighted(node, 1)):
            return False
        where = slide.where
        filter_ = () if pool else key.inputs[1].shape
        taps = where.spatial(key.numbers("ksize")) if pool else filter_[:-2]
        space = where.spatial(given)
        windows = slide.windows(space, taps)
        if windows is None:
            return False
        axes: list[list[Length]] = [[] for _ in given]
        shape = list(given)
        axes[0] = self.drafts.inherited(number, view[0])
        for n, axis in enumerate(where.space):
            reach, stride = slide.reach(n, taps[n]), slide.strides[n]
            before = 0 if slide.padding else max((windows[n] - 1) * stride + reach - space[n], 0) // 2
            if slide.padding:
                before = slide.padding[n][0]
            shape[axis] = windows[n]
            length = Length(windows[n], "attribute")
            if len(view[axis]) == 1:
                piece = view[axis][0].windowed(windows[n], stride, before, reach)
                length = Length(windows[n], self.drafts.kind(number, piece), [(number, piece)])
            axes[axis] = [length] if windows[n] > 1 else []
        self._channels(node, axes, shape, where.channels, number, view, pool, filter_)
        self._side(node, axes)
        self._begin(node, axes, tuple(shape))
        return True

    def _channels(
        self,
        node: int,
        axes: list[list[Length]],
        shape: list[int],
        channels: int,
        number: int,
        view: View,
        pool: bool,
        filter_: Shape,
    ) -> None:
        own = self.drafts.inherited(number, view[channels])
        if pool:
            axes[channels] = own
        elif self.view.families[node].startswith("Depthwise"):
            shape[channels] = filter_[-2] * filter_[-1]
            # with a multiplier a channel's results stand together, which no region says
            reads = own[0].reads if filter_[-1] == 1 and len(own) == 1 else []
            axes[channels] = [Length(shape[channels], "parameter", reads)]
        else:
            shape[channels] = filter_[-1]
            axes[channels] = [Length(filter_[-1], "parameter")]

    def _product(self, node: int, key: Key) -> bool:
        """MatMul, BatchMatMul and Einsum, by the letters of their axes."""
        reads = self.view.reads(node)[:2]
        labels = _labels(self.view.families[node], key)
        if labels is None or len(reads) < 2:
            return False
        axes: list[list[Length]] = []
        shape = []
        for letter in labels[2]:
            lengths: list[Length] = []
            size = 1
            for tensor, word, operand in zip(reads, labels, key.inputs, strict=False):
                if letter not in word:
                    continue
                at = word.index(letter)
                size = max(size, operand.shape[at])
                if tensor in self.tensors:
                    number, view, _ = self.tensors[tensor]
                    more = self.drafts.inherited(number, view[at])
                    same = [one.size for one in more] == [one.size for one in lengths]
                    for length, other in zip(lengths, more, strict=False):
                        if same:
                            length.reads += other.reads
                    lengths = lengths or more
            if not lengths and size > 1:
                learns = any(tensor[0] in self.weights for tensor in reads)
                lengths = [Length(size, "parameter" if learns else "whole")]
            axes.append(lengths)
            shape.append(size)
        self._side(node, axes)
        self._begin(node, axes, tuple(shape))
        return True

    def _side(self, node: int, axes: Sequence[Sequence[Length]]) -> None:
        """What a fused kernel adds position by position, besides what it learns."""
        for tensor in self.view.reads(node)[2:]:
            if tensor in self.tensors:
                number, view, _ = self.tensors[tensor]
                for lengths, axis in zip(reversed(axes), reversed(view), strict=False):
                    if tuple(one.size for one in lengths) == sizes(axis):
                        for length, piece in zip(lengths, axis, strict=True):
                            length.reads.append((number, piece))

    def _gather(self, node: int, key: Key) -> bool:
        (table, _), indices = self.view.reads(node)[:2]
        if indices not in self.tensors or not (table in self.weights or table in self.handles):
            return False
        number, view, given = self.tensors[indices]
        wanted = self._shape(node, 0)
        if wanted is None or wanted[: len(given)] != given:
            return False
        axes = [self.drafts.inherited(number, axis) for axis in view]
        fresh: list[list[Length]] = [[Length(size, "parameter")] for size in wanted[len(given) :]]
        self._begin(node, [*axes, *fresh], wanted)
        return True

    def _concat(self, node: int, key: Key) -> bool:
        found = self._data_inputs(node)
        shape = self._shape(node, 0)
        if shape is None or len(found) < len(self.view.reads(node)) - 1:
            return False
        places = [
            n
            for n in range(len(shape))
            if sum(one[2][n] for one in found) == shape[n]
            and all(one[2][:n] + one[2][n + 1 :] == shape[:n] + shape[n + 1 :] for one in found)
        ]
        if len(places) != 1 or any(len(one[1][places[0]]) > 1 for one in found):
            return False
        axes = []
        for n, size in enumerate(shape):
            if n != places[0]:
                lengths = self.drafts.inherited(found[0][0], found[0][1][n])
                for number, view, _ in found[1:]:
                    if tuple(one.size for one in lengths) == sizes(view[n]):
                        for length, piece in zip(lengths, view[n], strict=True):
                            length.reads.append((number, piece))
                axes.append(lengths)
                continue
            joined, offset = Length(size, "attribute"), 0
            for number, view, given in found:
                if view[n]:
                    piece = view[n][0].windowed(size, 1, offset, 1)
                    joined.reads.append((number, piece))
                offset += given[n]
            axes.append([joined])
        self._begin(node, axes, shape)
        return True

    def _opaque(self, node: int) -> None:
        """By samples at most: where they are the first axis of all that it reads and gives out."""
        found = self._data_inputs(node)
        shape = self._shape(node, 0)
        axes: list[list[Length]] = [[Length(size, "whole")] for size in shape or () if size > 1]
        firsts = [view[0] if view else () for _, view, _ in found]
        if (
            shape
            and shape[0] == self.batch > 1
            and all(
                len(axis) == 1
                and axis[0].size == self.batch
                and self.drafts.kind(number, axis[0]) == "sample"
                for (number, _, _), axis in zip(found, firsts, strict=True)
            )
        ):
            reads = [(number, axis[0]) for (number, _, _), axis in zip(found, firsts, strict=True)]
            axes[0] = [Length(self.batch, "sample", reads)]
        if shape:
            axes = [axes.pop(0) if size > 1 else [] for size in shape]
        self._begin(node, axes, shape or ())

    # what they have in common

    def _begin(self, node: int, axes: Sequence[Sequence[Length]], shape: Shape) -> None:
        found = self._data_inputs(node)
        full = [one for one in found if not self._statistic(one)] or found
        read = dict.fromkeys(number for number, _, _ in full)
        number, view = self.drafts.begin(node, axes, list(read), data=False)
        self.operator[node] = number
        self.tensors[node, 0] = number, view, shape
        for slot in range(1, len(self.view.nodes[node].outputs)):
            self.tensors[node, slot] = number, (), ()

    def _keep(self, node: int, number: int, view: View, shape: Shape) -> None:
        self.drafts[number].nodes.append(node)
        self.operator[node] = number
        self.tensors[node, 0] = number, view, shape
        for slot in range(1, len(self.view.nodes[node].outputs)):
            known = self._shape(node, slot) or ()
            own = view[-1:] if known and known[-1:] == shape[-1:] else ()
            self.tensors[node, slot] = number, ((),) * (len(known) - len(own)) + own, known

    def _shape(self, node: int, slot: int) -> Shape | None:
        return self.view.shapes.get((node, slot))

    def _data_inputs(self, node: int) -> list[tuple[int, View, Shape]]:
        return [self.tensors[t] for t in self.view.reads(node) if t in self.tensors]

    def _first(self, node: int) -> tuple[int, View, Shape]:
        return self._data_inputs(node)[0]

    def _weighted(self, node: int, place: int) -> bool:
        return self.view.reads(node)[place] not in self.tensors

    def _rest(self) -> None:
        """Ops that know of no examples go with the first operator that reads them; ops of metrics
        and statistics, which no gradient needs, with the last that they read."""
        view, roles = self.view, self.roles
        aside = [
            node
            for node in view.order
            if node in self.from_data
            and node not in self.operator
            and node not in roles.gradients
            and node not in roles.optimizer
        ]
        for node in aside:
            found = [self.operator[b] for b in view.needs[node] if b in self.operator]
            if found:
                self._take(node, max(found))
        for node in reversed(view.order):
            if node not in self.from_data and node not in roles.optimizer:
                found = [self.operator[a] for a in view.readers[node] if a in self.operator]
                if found:
                    self._take(node, min(found))

    def _take(self, node: int, number: int) -> None:
        self.operator[node] = number
        self.drafts[number].nodes.append(node)


def _together(lengths: Sequence[Length]) -> list[Length]:
    return [Length(one.size, "whole") for one in lengths]


def _padded(view: View, given: Shape, wanted: Shape) -> View | None:
    """How much goes before is not in a key: each position may be any of those that it can be."""
    found = []
    for axis, size, more in zip(view, given, wanted, strict=True):
        if more == size:
            found.append(axis)
        elif len(axis) == 1 and more > size:
            found.append((axis[0].windowed(more, 1, more - size, more - size + 1),))
        else:
            return None
    return tuple(found)


def _labels(family: str, key: Key) -> tuple[str, str, str] | None:
    """A letter for each axis of both operands and of the result."""
    a, b = (len(one.shape) for one in key.inputs[:2])
    if family == "Einsum":
        left, _, right = key.attributes.get("equation", "").replace(" ", "").partition("->")
        one, _, other = left.partition(",")
        good = "." not in left and (len(one), len(other)) == (a, b)
        return (one, other, right) if good else None
    if min(a, b) < 2:
        return None
    batch = "abcdefgh"[: max(a, b) - 2]
    rows, columns = "mk", "kn"
    if key.true("transpose_a", "adj_x"):
        rows = "km"
    if key.true("transpose_b", "adj_y"):
        columns = "nk"
    return batch[len(batch) - (a - 2) :] + rows, batch[len(batch) - (b - 2) :] + columns, f"{batch}mn"


_Rule = Callable[[Layers, int, Key], bool]
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys((*_CONVOLUTIONS, *_POOLS), Layers._window),
    **dict.fromkeys(("MatMul", "BatchMatMul", "Einsum"), Layers._product),
    **dict.fromkeys(_GATHERS, Layers._gather),
    **dict.fromkeys(("Concat", "ConcatV2"), Layers._concat),
    **dict.fromkeys(_ROWS, Layers._rows),
    **dict.fromkeys(_ENTROPY, Layers._entropy),
}
_KINDS: tuple[Kind, ...] = ("sample", "attribute", "parameter", "whole")
