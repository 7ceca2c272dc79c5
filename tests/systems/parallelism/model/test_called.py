"""From a step of PyTorch's to operators: what reads what, and what is divided by what."""

from __future__ import annotations

import dataclasses
from dataclasses import field

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.pytorch_step import Call, Calls, Layer, Storage
from dltune.systems.parallelism.model.pytorch_operators import called
from dltune.systems.parallelism.schemas.operators import Operator, Region


@dataclasses.dataclass
class Step:
    """A forward pass, layer by layer; storages are numbered as they are given out."""

    calls: list[Call] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    storages: int = 1  # the first is the step's data

    def call(self, *reads: int, writes: tuple[int, ...] = ()) -> int:
        """The storage that it gives out, or writes."""
        gives = () if writes else (self.storages,)
        self.storages += len(gives)
        self.calls.append(Call("aten.op", "forward", 0.0, 0, reads, gives, writes, True, False))
        return (*writes, *gives)[0]

    def layer(
        self,
        path: str,
        kind: str,
        read: int,
        given: tuple[int, ...],
        output: tuple[int, ...],
        weights: tuple[tuple[int, int], ...] = (),
        window: tuple[int, ...] = (),
        groups: int = 1,
        samples: int = 0,
    ) -> int:
        first = len(self.calls)
        gives = self.call(read)
        self.layers.append(
            Layer(
                *(path, kind, first, len(self.calls), (read,), (gives,), (given,), output, 4),
                *(weights, window, groups, samples),
            )
        )
        return gives

    def operators(self) -> dict[str, Operator]:
        storages = tuple(Storage(4, -1, 0, 0) for _ in range(self.storages))
        step = Calls(tuple(self.calls), storages, (), (), False, tuple(self.layers))
        found = called(step, "net")
        assert struct_faults("", found) == []
        return {one.name: one for one in found.operators}


def images() -> Step:
    step = Step()
    h = step.layer("conv", "Conv2d", 0, (8, 3, 8, 8), (8, 4, 8, 8), ((0, 432), (1, 16)), (3, 3, 1))
    h = step.layer("norm", "BatchNorm2d", h, (8, 4, 8, 8), (8, 4, 8, 8), ((2, 16), (3, 16)))
    step.call(h, writes=(h,))  # relu_
    pooled = step.layer("pool", "MaxPool2d", h, (8, 4, 8, 8), (8, 4, 4, 4), (), (2, 2, 2))
    step.layer("dense", "Linear", pooled, (8, 64), (8, 10), ((4, 2560), (5, 40)))
    return step


def test_channels_of_images_are_last_and_pixels_whole() -> None:
    conv = images().operators()["conv"]
    assert [(one.name, one.size, one.kind) for one in conv.dimensions] == [
        ("sample", 8, "sample"),
        ("height", 8, "whole"),
        ("width", 8, "whole"),
        ("channel", 4, "parameter"),
    ]
    assert conv.type == "conv 3x3/1 bias"
    assert conv.flops == 2 * (8 * 8 * 8 * 4) * (3 * 3 * 3)
    assert conv.backward_flops == conv.flops  # its input has no gradient
    assert conv.inputs == ()


def test_a_layer_reads_its_own_channel_or_all() -> None:
    found = images().operators()
    own = tuple(Region(1, place) for place in range(4))
    assert found["norm"].inputs[0].regions == own
    assert found["pool"].inputs[0].regions == (Region(1, 0), Region(8), Region(8), Region(1, 3))
    assert found["pool"].dimensions[3].kind == "attribute"
    flattened = (Region(1, 0), Region(4), Region(4), Region(4))
    assert found["dense"].inputs[0].regions == flattened
    names = [one.name for one in found.values()]
    assert [names[found[name].inputs[0].operator] for name in ("norm", "pool", "dense")] == [
        "conv",
        "norm",
        "pool",
    ]


def test_what_stands_between_layers_passes_on_what_it_reads() -> None:
    """A residual connection, attention, and a layer without weights."""
    step = Step()
    words = step.layer("words", "Embedding", 0, (4, 6), (4, 6, 8), ((0, 1280),))
    qkv = step.layer("qkv", "Linear", words, (4, 6, 8), (4, 6, 24), ((1, 768),))
    mixed = step.call(step.call(qkv))
    out = step.layer("out", "Linear", mixed, (4, 6, 8), (4, 6, 8), ((2, 256),))
    dropped = step.layer("drop", "Dropout", out, (4, 6, 8), (4, 6, 8))
    both = step.call(words, dropped)
    step.layer("norm", "LayerNorm", both, (4, 6, 8), (4, 6, 8), ((3, 32), (4, 32)))
    found = step.operators()
    assert [*found] == ["words", "qkv", "out", "norm"]
    assert [one.operator for one in found["norm"].inputs] == [0, 2]
    assert found["norm"].inputs[1].regions == (Region(1, 0), Region(1, 1), Region(8))
    assert [one.operator for one in found["out"].inputs] == [1]
    assert found["out"].inputs[0].regions == (Region(1, 0), Region(6), Region(24))
    assert [one.kind for one in found["qkv"].dimensions] == ["sample", "attribute", "parameter"]
    assert [one.kind for one in found["norm"].dimensions] == ["sample", "attribute", "whole"]


def test_layers_of_one_weight_are_a_group_and_divided_alike() -> None:
    step = Step()
    h = step.layer("words", "Embedding", 0, (4,), (4, 8), ((0, 1280),))
    h = step.layer("cell", "Linear", h, (4, 8), (4, 8), ((1, 256),))
    h = step.layer("cell", "Linear", h, (4, 8), (4, 8), ((1, 256),))
    step.layer("head", "Linear", h, (4, 8), (4, 40), ((0, 1280),))
    found = step.operators()
    assert [*found] == ["words", "cell", "cell 2", "head"]
    assert [one.weights for one in found.values()] == [0, 1, 1, 0]
    kinds = [one.dimensions[-1].kind for one in found.values()]
    assert kinds == ["whole", "parameter", "parameter", "whole"]


def test_samples_may_come_after_steps() -> None:
    step = Step()
    h = step.layer("cells", "LSTM", 0, (6, 4, 8), (6, 4, 8), ((0, 2048),), samples=1)
    step.layer("last", "Linear", h, (4, 8), (4, 5), ((1, 160),))
    found = step.operators()
    assert [(one.name, one.kind) for one in found["cells"].dimensions] == [
        ("length", "whole"),
        ("sample", "sample"),
        ("channel", "whole"),
    ]
    assert found["last"].inputs[0].regions == (Region(6), Region(4), Region(8))


def test_channels_of_dense_layers_are_last_whatever_comes_before() -> None:
    step = Step()
    h = step.layer("patch", "Linear", 0, (4, 7, 7, 8), (4, 7, 7, 16), ((0, 512),))
    h = step.layer("norm", "LayerNorm", h, (4, 7, 7, 16), (4, 7, 7, 16), ((1, 64),))
    step.layer("none", "Linear", h, (0, 16), (0, 4), ((2, 256),))
    found = step.operators()
    assert [*found] == ["patch", "norm"]  # nothing is computed by the third
    assert [(one.size, one.kind) for one in found["patch"].dimensions] == [
        (4, "sample"),
        (7, "attribute"),
        (7, "attribute"),
        (16, "parameter"),
    ]
    alike = (Region(1, 0), Region(1, 1), Region(1, 2), Region(16))
    assert found["norm"].inputs[0].regions == alike


def test_what_groups_of_channels_learn_is_whole() -> None:
    step = Step()
    step.layer(
        *("conv", "Conv2d", 0, (8, 4, 8, 8), (8, 4, 8, 8), ((0, 144),)),
        window=(3, 3, 1),
        groups=4,
    )
    found = step.operators()["conv"]
    assert found.type == "depthwise 3x3/1"
    assert found.dimensions[-1].kind == "whole"


def test_a_convolution_of_groups_whose_input_is_not_known() -> None:
    step = Step()
    step.layer(
        *("conv", "Conv2d", 0, (8, 4, 8, 8), (8, 4, 8, 8), ((0, 144),)),
        window=(3, 3, 1),
        groups=4,
    )
    (layer,) = step.layers
    step.layers = [msgspec.structs.replace(layer, reads=(), inputs=())]
    assert step.operators()["conv"].type == "Conv2d 3x3/1"


@pytest.mark.parametrize(
    ("kind", "output", "fault"),
    [("Dropout", (4, 8), "contains no layers"), ("Conv3d", (4, 2, 3, 3, 3), "has 5 dimensions")],
)
def test_what_cannot_be_planned_is_refused(kind: str, output: tuple[int, ...], fault: str) -> None:
    step = Step()
    weights = ((0, 4),) if kind == "Conv3d" else ()
    step.layer("one", kind, 0, output, output, weights)
    with pytest.raises(UsageError, match=fault):
        step.operators()
