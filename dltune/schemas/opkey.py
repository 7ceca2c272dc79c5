"""What an op's key says: `Conv2D(float[8,28,28,64],float[3,3,64,64]){padding=SAME, ...}`.

The plugin writes keys (`Attributes` in dltune/frameworks/tensorflow/plugin/capture.cc), and so does
what reads traces (dltune/profile/traces); here they are read. PyTorch's types have their namespace:
`aten::mm(...)`.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Tensor:
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


@dataclass(frozen=True)
class OpKey:
    """`attributes`: as the key writes them, lists as `[1,2,2,1]`."""

    type: str
    inputs: tuple[Tensor, ...]
    attributes: Mapping[str, str]

    def with_inputs(self, inputs: tuple[Tensor, ...]) -> OpKey:
        return dataclasses.replace(self, inputs=inputs)

    def integers(self, attribute: str) -> tuple[int, ...]:
        """The numbers of a list attribute; none when the key has no such attribute."""
        return tuple(map(int, re.findall(r"-?\d+", self.attributes.get(attribute, ""))))

    def __str__(self) -> str:
        attributes = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        ending = f"{{{attributes}}}" if attributes else ""
        return f"{self.type}({','.join(map(str, self.inputs))}){ending}"


def parse(key: str) -> OpKey:
    """Raises ValueError for text that is no key, or inputs whose shapes are not known."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} is not an op key such as MatMul(float[8,8],float[8,8])")
    kind, inputs, attributes = found.groups()
    tensors = tuple(
        Tensor(dtype, tuple(map(int, filter(None, shape.split(",")))))
        for dtype, shape in _INPUT.findall(inputs)
    )
    if ",".join(map(str, tensors)) != inputs:
        raise ValueError(f"{key!r} has an input without a shape")
    return OpKey(kind, tensors, _attributes(attributes or ""))


def _attributes(text: str) -> dict[str, str]:
    _, *found = _ATTRIBUTE.split(text)
    return dict(zip(found[::2], found[1::2], strict=True))


def of_node(graph: str, name: str) -> str:
    """What stands for a key where one node of the graph with this signature is meant."""
    return f"@{graph}/{name}"


def named_node(key: str) -> tuple[str, str] | None:
    """The graph's signature and the node's name; None for the key of an op."""
    graph, _, name = key.removeprefix("@").partition("/")
    return (graph, name) if key.startswith("@") else None
