"""Inside the job's Python: as which layer of `torch.nn` a module computes."""

from __future__ import annotations

from typing import Any


def kind_of(torch: Any, module: Any) -> str:
    """The layer of `torch.nn` as which it computes; empty: another."""
    if hasattr(module, "parametrizations") or hasattr(module, "weight_g"):
        return ""  # its weights are made of others
    kind: Any = type(module)
    for base in kind.__mro__:
        layer = getattr(torch.nn, base.__name__, None)
        if layer is base and layer.forward is kind.forward:
            return str(layer.__name__)
    return ""
