"""Ops from their keys, as a profile has them."""

from __future__ import annotations

from dltune.schemas import graph
from dltune.schemas.profile import Count, Op, OpTime


def keyed(
    key: str,
    output_bytes: int = 0,
    *,
    seconds: dict[int, float] | None = None,
    counts: dict[str, float] | None = None,
    count: int = 1,
) -> Op:
    """`seconds`: by thread count; `counts`: of each case."""
    parts = graph.parse_key(key)
    return Op(
        key=key,
        type=parts.type,
        inputs=tuple(map(str, parts.inputs)),
        count=count,
        output_bytes=output_bytes,
        own=None,
        times=tuple(
            OpTime(
                threads,
                "spread" if threads == 1 else "shared",
                5,
                time,
                time,
                0.01,
                tuple(Count(event, value, 0.0, 5) for event, value in (counts or {}).items()),
            )
            for threads, time in (seconds or {}).items()
        ),
    )


def convolution(
    kind: str,
    *shapes: tuple[int, ...] | None,
    strides: tuple[int, ...],
    padding: str = "SAME",
    layout: str = "NHWC",
    dilations: tuple[int, ...] | None = None,
    more: str = "",
) -> str:
    """A key; a shape that is None is the value of an input, which keys do not have."""
    rank = len(strides)
    inputs = ",".join(
        f"int32[{rank}]" if shape is None else f"float[{','.join(map(str, shape))}]"
        for shape in shapes
    )
    dilated = ",".join(map(str, dilations or (1,) * rank))
    return (
        f"{kind}({inputs}){{data_format={layout}, dilations=[{dilated}]{more}, padding={padding}, "
        f"strides=[{','.join(map(str, strides))}]}}"
    )
