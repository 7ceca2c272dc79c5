"""The graph document: a training step that was not profiled, written by hand or by another program.

Nodes, tensors and ops are referred to by position, counted from 0.
`dltune.simulate.graph_document` reads and writes it.
"""

from __future__ import annotations

import collections
import graphlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, LABEL, Bound, at_least, each, repeated
from dltune.schemas.profile import Placement

SCHEMA = "dltune.graph/1"

TensorKind = Literal["result", "variable", "constant", "argument"]


def _bits(bits: int) -> Bound:
    return Bound(f"between 0 and 2^{bits} - 1", lambda value: 0 <= value < 1 << bits)


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way to run an op.

    `threads`, `placement`: thread count and placement.
    `seconds`: duration.
    """

    threads: Annotated[int, at_least(1)]
    placement: Placement
    seconds: Annotated[float, AMOUNT]


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Work that several nodes can run.

    `key`: text that determines the work; unique.
    `ways`: measured ways to run it; empty if unknown.
    """

    key: Annotated[str, LABEL]
    ways: tuple[Way, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        cases = collections.Counter((way.threads, way.placement) for way in self.ways)
        for (threads, placement), n in cases.items():
            if n > 1:
                yield (
                    f"ways must contain each way only once, got {threads} threads {placement} {n} "
                    "times"
                )


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node of the graph.

    `name`, `type`: for people.
    `op`: position of its op; null for a node that takes no time.
    `inputs`: by input slot, positions of the tensors that it reads.
    `control`: positions of further nodes that must finish before it.
    `runs`: runs per execution; more than 1 in a loop.
    `back`: true if its outputs flow back in a loop; no node waits for it.
    `device`: device with its task, such as `/job:worker/task:0/device:CPU:0`; empty if unknown.
    """

    name: Annotated[str, LABEL]
    type: str = ""
    op: int | None = None
    inputs: tuple[int, ...] = ()
    control: tuple[int, ...] = ()
    runs: Annotated[float, AMOUNT] = 1.0
    back: bool = False
    device: str = ""


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An output of a node.

    `node`, `slot`: node and output slot.
    `bytes`: size.
    `dtype`: element type.
    `kind`: `result` of the step; or `variable`, `constant` or `argument`, which exist before and
      after the step.
    `alias`: position of the tensor whose memory it uses; null if it has its own memory.
    """

    node: int
    slot: Annotated[int, _bits(31)]
    bytes: Annotated[int, _bits(63)]
    dtype: str = ""
    kind: TensorKind = "result"
    alias: int | None = None


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A training step.

    `nodes`: nodes.
    `tensors`: outputs of the nodes.
    `ops`: ops that the nodes run.
    """

    schema: str
    nodes: tuple[Node, ...]
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("ops", "key", (op.key for op in self.ops))
        faults = [*_node_faults(self), *_tensor_faults(self)]
        yield from faults or _cycle(self)


load = documents.reader(Graph, SCHEMA)


def _node_faults(graph: Graph) -> Iterator[str]:
    for here, node in each("nodes", graph.nodes):
        own = () if node.op is None else (node.op,)
        references = (
            ("op", "ops", len(graph.ops), own),
            ("inputs", "tensors", len(graph.tensors), node.inputs),
            ("control", "nodes", len(graph.nodes), node.control),
        )
        for field, what, there, wanted in references:
            for n in wanted:
                if not 0 <= n < there:
                    yield f"{here}.{field} refers to {what}[{n}], which does not exist"


def _tensor_faults(graph: Graph) -> Iterator[str]:
    first: dict[tuple[int, int], int] = {}
    for index, (here, tensor) in enumerate(each("tensors", graph.tensors)):
        if not 0 <= tensor.node < len(graph.nodes):
            yield f"{here}.node refers to nodes[{tensor.node}], which does not exist"
        same = first.setdefault((tensor.node, tensor.slot), index)
        if same != index:
            at = f"slot {tensor.slot} of nodes[{tensor.node}]"
            yield f"{here}.slot must be unique for its node: {at} is also tensors[{same}]"
        if tensor.alias is not None:
            yield from _alias_faults(graph, here, tensor, tensor.alias)


def _alias_faults(graph: Graph, here: str, tensor: Tensor, alias: int) -> Iterator[str]:
    if not 0 <= alias < len(graph.tensors):
        yield f"{here}.alias refers to tensors[{alias}], which does not exist"
        return
    owner = graph.tensors[alias]
    if owner.alias is not None:
        yield f"{here}.alias refers to tensors[{alias}], which is an alias too"
    if owner.kind != tensor.kind:
        yield (
            f"{here}.kind must be {owner.kind!r} as in tensors[{alias}], which it is an alias of, "
            f"got {tensor.kind!r}"
        )


def _cycle(graph: Graph) -> Iterator[str]:
    """One of them, where there are any."""
    waits = {
        index: [
            before
            for before in (*(graph.tensors[t].node for t in node.inputs), *node.control)
            if not graph.nodes[before].back
        ]
        for index, node in enumerate(graph.nodes)
    }
    try:
        graphlib.TopologicalSorter(waits).prepare()
    except graphlib.CycleError as error:
        around = ", ".join(f"{node} ({graph.nodes[node].name})" for node in error.args[1][1:])
        yield (
            f"nodes must not wait for each other in a cycle: {around}; set back on the node that "
            "closes a loop"
        )


# bytes of an element, by TensorFlow's names
SIZES: Mapping[str, int] = {
    "bool": 1, "int8": 1, "uint8": 1, "qint8": 1, "quint8": 1,
    "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "float": 4, "int32": 4, "uint32": 4, "qint32": 4,
    "double": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
_KEY = re.compile(r"([\w:.]+)\((.*?)\)(?:\{(.*)\})?", re.DOTALL)
_INPUT = re.compile(r"(\w+)\[([\d,]*)\]")
_ATTRIBUTE = re.compile(r"(?:^|, )(\w+)=")


class TensorType(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """0 for types without a size of their own: strings, resources, variants."""
        return self.elements * SIZES.get(self.dtype, 0)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class OpKey(msgspec.Struct, frozen=True):
    """What an op's key says: `Conv2D(float[8,28,28,64],float[3,3,64,64]){padding=SAME, ...}`.

    The plugin writes keys (`Attributes` in dltune/frameworks/tensorflow/plugin/capture.cc), and so
    does what reads traces (dltune/profile/traces); here they are read. PyTorch's types have their
    namespace: `aten::mm(...)`. `attributes`: as the key writes them, lists as `[1,2,2,1]`.
    """

    type: str
    inputs: tuple[TensorType, ...]
    attributes: Mapping[str, str]

    def with_inputs(self, inputs: tuple[TensorType, ...]) -> OpKey:
        return msgspec.structs.replace(self, inputs=inputs)

    def integers(self, attribute: str) -> tuple[int, ...]:
        """The numbers of a list attribute; none when the key has no such attribute."""
        return tuple(map(int, re.findall(r"-?\d+", self.attributes.get(attribute, ""))))

    def __str__(self) -> str:
        attributes = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        ending = f"{{{attributes}}}" if attributes else ""
        return f"{self.type}({','.join(map(str, self.inputs))}){ending}"


def parse_key(key: str) -> OpKey:
    """Raises ValueError for text that is no key, or inputs whose shapes are not known."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} is not an op key such as MatMul(float[8,8],float[8,8])")
    kind, inputs, attributes = found.groups()
    tensors = tuple(
        TensorType(dtype, tuple(map(int, filter(None, shape.split(",")))))
        for dtype, shape in _INPUT.findall(inputs)
    )
    if ",".join(map(str, tensors)) != inputs:
        raise ValueError(f"{key!r} has an input without a shape")
    return OpKey(kind, tensors, _attributes(attributes or ""))


def _attributes(text: str) -> dict[str, str]:
    _, *found = _ATTRIBUTE.split(text)
    return dict(zip(found[::2], found[1::2], strict=True))


def of_node(graph: str, name: str) -> str:
    """Return the name that replaces an op's key to refer to a single node of the graph with this
    signature."""
    return f"@{graph}/{name}"


def named_node(key: str) -> tuple[str, str] | None:
    """The graph's signature and the node's name; None for the key of an op."""
    graph, _, name = key.removeprefix("@").partition("/")
    return (graph, name) if key.startswith("@") else None


NAMESPACE = "aten::"

# give out the memory of their first input
VIEWS = frozenset(
    {
        *("alias", "as_strided", "chunk", "detach", "diagonal", "expand", "expand_as", "flatten"),
        *("lift_fresh", "movedim", "narrow", "permute", "reshape", "reshape_alias", "select"),
        *("slice", "split", "split_with_sizes", "squeeze", "swapaxes", "t", "transpose", "unbind"),
        *("unflatten", "unfold", "unsafe_split", "unsafe_view", "unsqueeze", "view", "view_as"),
    }
)

_WINDOWS = ("stride", "padding", "dilation")
_CONVOLUTION = (*_WINDOWS, "transposed", "output_padding", "groups")
# by place, the arguments that follow the tensors of those ops whose work they change most
ARGUMENTS: Mapping[str, Mapping[int, str]] = {
    "conv1d": dict(enumerate((*_WINDOWS, "groups"), start=3)),
    "conv2d": dict(enumerate((*_WINDOWS, "groups"), start=3)),
    "conv3d": dict(enumerate((*_WINDOWS, "groups"), start=3)),
    "convolution": dict(enumerate(_CONVOLUTION, start=3)),
    "convolution_backward": dict(enumerate((*_CONVOLUTION, "output_mask"), start=4)),
}


def aten_name(kind: str) -> str:
    """`aten::_softmax` and `aten::softmax_` are `softmax`."""
    return kind.removeprefix(NAMESPACE).strip("_")


Kind = Literal["ops", "input", "communication", "call"]

# The one table of node types; types without a match work. A call is as busy as its body.
_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (
        "input",
        re.compile(
            r"IteratorGetNext|Dequeue|Unstage|^Barrier(TakeMany|ReadySize)|^ReaderRead"
            r"|^DatasetToSingleElement|^DataLoader$"
        ),
    ),
    (
        "communication",
        re.compile(
            r"^Collective|^Horovod|Nccl|^_(Host)?(Send|Recv)|^(Send|Recv)Tensor|^Byteps"
            r"|^RemoteCall|Accumulator(TakeGradient|TakeDense)|^(c10d|gloo|nccl|mpi)::"
        ),
    ),
    ("call", re.compile(r"^(Stateful)?PartitionedCall|^(Stateless)?(If|While|Case)$|^For$")),
)


def kind(node_type: str) -> Kind:
    """Return how an op of this type spends its time."""
    return next((found for found, pattern in _KINDS if pattern.search(node_type)), "ops")
