"""An op key as the analysis needs it: families of op types, attributes by kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dltune.schemas import graph
from dltune.schemas.graph import SIZES, TensorType
from dltune.schemas.profile import Op

FLOATS = frozenset({"float", "double", "half", "bfloat16"})

_NUMBER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True)
class Key:
    """`family`: the op type without additions of kernel rewriting (`_Mkl`, `Native`, `_Fused`) and
    without its version. `attributes`: text as in the key."""

    family: str
    inputs: tuple[TensorType, ...]
    attributes: Mapping[str, str]

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list attribute such as strides=[1,2,2,1]; empty when it is not there, or no such."""
        words = self.words(name)
        return tuple(map(int, words)) if all(map(_NUMBER.fullmatch, words)) else ()

    def words(self, name: str) -> tuple[str, ...]:
        text = self.attributes.get(name, "").strip("[]")
        return tuple(text.split(",")) if text else ()

    def true(self, *names: str) -> bool:
        """True if one of these attributes holds."""
        return any(self.attributes.get(name) == "true" for name in names)


def family(kind: str) -> str:
    """`_MklNativeFusedConv2D` and `_FusedConv2D` are `Conv2D`; FusedBatchNorm is a name itself."""
    name = kind.lstrip("_")
    for prefix in ("Mkl", "Native", "Fused"):
        if name.startswith(prefix) and not name.startswith("FusedBatchNorm"):
            name = name[len(prefix) :]
    return re.sub(r"V\d+$", "", name)


def parse(op: Op) -> Key | None:
    """None when the key has an input whose shape is not known, or is none that dltune wrote."""
    try:
        found = graph.parse_key(op.key)
    except ValueError:
        return None
    return Key(family(found.type), found.inputs, found.attributes)


def real(tensor: TensorType) -> bool:
    """True if arithmetic on it is floating-point arithmetic, of real numbers."""
    return tensor.dtype in FLOATS


def sized(tensor: TensorType) -> bool:
    """True if its elements are numbers, and not strings or handles."""
    return tensor.dtype in SIZES
