"""PyTorch's ops by name: `aten::add_` writes its result over its input, `aten::_softmax` is what
`aten::softmax` calls."""

from __future__ import annotations

from collections.abc import Mapping

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


def name(kind: str) -> str:
    """`aten::_softmax` and `aten::softmax_` are `softmax`."""
    return kind.removeprefix(NAMESPACE).strip("_")
