"""Inside the job's Python: random numbers for what is divided are those that one process draws.

Every process draws all of them, and takes its part: on CPUs DTensor's own would be the same in all
parts, and generators would drift apart where parts differ in size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

# beside this file
from _dltune_torch_layers import Layers, all_gathered, is_divided

# of torch.nn.functional, what multiplies by what it draws
_MASKS = ("dropout", "dropout1d", "dropout2d", "dropout3d")
# what draws by the values that it is given, and by their shape alone
_BY_VALUES = ("alpha_dropout", "feature_alpha_dropout")
_BY_VALUES_OF_TORCH = ("bernoulli", "multinomial", "normal", "poisson")
_LIKE = ("rand_like", "randn_like", "randint_like")
_IN_PLACE = ("uniform_", "normal_", "bernoulli_", "exponential_", "random_", "log_normal_")
_METHODS = ("bernoulli", "multinomial")


def draw_alike(torch: Any, layers: Layers) -> None:
    """From now on, for what functions of PyTorch's draw."""
    functional = torch.nn.functional
    for module, names, drawing in (
        (functional, _MASKS, _masking),
        (functional, _BY_VALUES, _by_values),
        (torch, _BY_VALUES_OF_TORCH, _by_values),
        (torch, _LIKE, _like),
    ):
        for name in names:
            setattr(module, name, drawing(layers, getattr(module, name)))


def fill_alike(layers: Layers, kind: Any) -> None:
    """From now on, for what tensors of a `kind` are filled with."""
    for name in _IN_PLACE:
        setattr(kind, name, _filling(layers, getattr(layers.torch.Tensor, name)))
    for name in _METHODS:
        setattr(kind, name, _by_values(layers, getattr(layers.torch.Tensor, name)))


def _masking(layers: Layers, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def masked(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not is_divided(input):
            return plain(input, p, training, inplace)
        ones = _empty(layers.torch, input).fill_(1)
        mask = layers.like(input, plain(ones, p, training))
        return input.mul_(mask) if inplace else input * mask

    return masked


def _by_values(layers: Layers, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        divided = next((one for one in given if is_divided(one)), None)
        if divided is None:
            return plain(*args, **kwargs)
        whole, named = all_gathered((args, kwargs))
        found = plain(*whole, **named)
        alike = found.shape == divided.shape
        return layers.like(divided, found) if alike else layers.as_whole(found)

    return drawn


def _like(layers: Layers, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def drawn(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_divided(input):
            return plain(input, *args, **kwargs)
        empty = _empty(layers.torch, input)
        return layers.like(input, plain(empty, *args, **kwargs))

    return drawn


def _filling(layers: Layers, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def filled(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        whole = plain(_empty(layers.torch, tensor), *args, **kwargs)
        return tensor.copy_(layers.like(tensor, whole))

    return filled


def _empty(torch: Any, tensor: Any) -> Any:
    """Of the same shape, and in the same order in memory, in which numbers are drawn."""
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return torch.empty_like(meta, device="cpu")
