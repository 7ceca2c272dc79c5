"""Sections on parallelism for the jobs of tests/jobs that use JAX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dltune.plan.plan import new_plan
from dltune.system import topology
from dltune.systems.parallelism.schemas.strategy import Divided, Parallelism

IMAGE = ("sample", "height", "width", "channel")
VECTOR = ("sample", "channel")


def operator(
    name: str,
    type: str,
    dimensions: tuple[str, ...],
    mesh: Sequence[int],
    axes: tuple[int | None, ...],
    *,
    learns: bool = True,
) -> Divided:
    """On all devices of the mesh; its weights have its own name."""

    def times(wanted: int | None) -> int:
        return math.prod(size for size, at in zip(mesh, axes, strict=True) if at == wanted)

    return Divided(
        name,
        type,
        dimensions,
        tuple(map(times, range(len(dimensions)))),
        times(None),
        tuple(range(math.prod(mesh))),
        len(dimensions) - 1 if learns else None,
        name if learns else "",
        axes,
    )


def section(mesh: tuple[int, ...], *operators: Divided) -> Parallelism:
    devices = tuple(f"cpu{n}" for n in range(math.prod(mesh)))
    return Parallelism(
        network="net",
        topology="cpus",
        digests=("", ""),
        devices=devices,
        mesh=mesh,
        operators=operators,
        seconds=1.0,
        compute=1.0,
        bytes=0,
        baselines=(),
        proposals=1,
        searched=0.0,
        consumer="keras",
    )


def dense(mesh: tuple[int, ...] = (2,)) -> Parallelism:
    """For `jax_fit.py dense`: channels, then samples."""
    rest = (None,) * (len(mesh) - 1)
    return section(
        mesh,
        operator("sequential/dense", "dense bias relu", VECTOR, mesh, (1, *rest)),
        operator("sequential/dense_1", "dense bias", VECTOR, mesh, (0, *rest)),
    )


def conv(first: int | None = 0) -> Parallelism:
    """For `jax_fit.py conv` and `jax_plain.py`; `first`: the dimension of the convolution that is
    divided."""
    mesh = (2,)
    name = "sequential/batch_normalization"
    return section(
        mesh,
        operator("sequential/conv2d", "conv 3x3/1 bias relu", IMAGE, mesh, (first,)),
        operator(name, "batch_norm", IMAGE, mesh, (first,)),
        operator("sequential/flatten", "flatten", VECTOR, mesh, (0,), learns=False),
        operator("sequential/dense", "dense bias relu", VECTOR, mesh, (1,)),
        operator("sequential/dense_1", "dense bias", VECTOR, mesh, (None,)),
    )


def attention(*divided: tuple[int | None, ...], mesh: tuple[int, ...] = (2,)) -> Parallelism:
    """For `torch_fit.py attention`; `divided`: the axes of its layers, one after the other."""
    words = ("sample", "length", "channel")
    layers = (
        ("embedding", "embedding", words),
        ("qkv", "dense bias", words),
        ("out", "dense bias", words),
        ("norm", "layer_norm", words),
        ("cells", "lstm", words),
        ("last", "dense bias", VECTOR),
    )
    return section(
        mesh,
        *(
            operator(name, type, dimensions, mesh, axes)
            for (name, type, dimensions), axes in zip(layers, divided, strict=True)
        ),
    )


def saved(folder: Path, part: Parallelism) -> Path:
    """A plan of this machine."""
    path = folder / "plan.json"
    path.write_bytes(
        msgspec.json.encode(new_plan(topology.local(), sections={"parallelism": part}))
    )
    return path
