"""What a plan divides, whichever framework takes it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import parallel_plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dltune
from dltune.systems.parallelism.emit import expressed
from dltune.systems.parallelism.schemas.strategy import Parallelism

INJECT = Path(dltune.__file__).parent / "systems" / "parallelism" / "inject"


@pytest.fixture(scope="module")
def module() -> ModuleType:
    sys.path.append(str(INJECT))
    try:
        return importlib.import_module("_dltune_layouts")
    finally:
        sys.path.remove(str(INJECT))


def divided(*operators: tuple[str, str, tuple[int | None, ...]]) -> Parallelism:
    """Of a 2 x 3 mesh: type, name and axes of each."""
    return parallel_plans.section(
        (2, 3),
        *(
            parallel_plans.operator(name, type, parallel_plans.IMAGE, (2, 3), axes)
            for type, name, axes in operators
        ),
    )


def test_the_parameter_dimension_divides_the_last_of_each_weight(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("conv", "net/a.b", (0, 3)))))
    assert layouts.weight("net/a.b/kernel", (3, 3, 4, 6)) == (None, None, None, "axis1")
    assert layouts.weight("net/a.b/bias", (6,)) == ("axis1",)
    assert layouts.output("net/a.b", (4, 8, 8, 6)) == ("axis0", None, None, "axis1")
    assert layouts.batch((4, 8)) == ("axis0", None)


def test_all_of_what_weights_mix_is_read(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("conv", "a", (0, 3)), ("conv", "b", (1, 3)))))
    assert layouts.input("a", (4, 8, 8, 6)) == ("axis0", None, None, None)
    assert layouts.input("b", (4, 8, 8, 6)) == (None, "axis0", None, None)
    assert layouts.input("a", (4, 384)) == ("axis0", None)


def test_names_are_quoted(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("conv", "net/a.b", (0, 3)))))
    assert layouts.owners("net/a.b/kernel") == ["net/a.b"]
    assert layouts.owners("net/axb/kernel") == []
    assert layouts.owners("net/a.b/else/kernel") == []
    nested = module.Layouts(expressed(divided(("conv", "net/a.b", (0, 3)))), nested=True)
    assert nested.owners("net/a.b/else/in_proj") == ["net/a.b"]
    assert nested.owners("a.b/else/in_proj") == ["net/a.b"]
    assert nested.owners("net/axb/else/in_proj") == []
    with pytest.raises(ValueError, match="which of its dimensions to divide is unknown"):
        nested.weight("net/a.b/else/in_proj", (6, 6))


def test_several_axes_may_divide_one_dimension(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("conv", "a", (3, 3)))))
    assert layouts.weight("a/bias", (6,)) == (("axis0", "axis1"),)


def test_a_depthwise_kernel_is_divided_by_what_it_reads(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("depthwise", "a", (3, None)))))
    assert layouts.weight("a/kernel", (3, 3, 4, 1)) == (None, None, "axis0", None)
    assert layouts.weight("a/bias", (4,)) == ("axis0",)


def test_a_recurrent_layer_has_its_cells_weights(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("lstm", "net/lstm", (3, None)))))
    for name in ("kernel", "recurrent_kernel"):
        assert layouts.weight(f"net/lstm/lstm_cell/{name}", (4, 8)) == (None, "axis0")


def test_a_model_may_lack_its_own_name(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("conv", "net/a", (3, None)))))
    assert layouts.owners("a/kernel") == ["net/a"]
    assert layouts.operator("a") == "net/a"
    assert layouts.operator("b") is None


def test_a_weight_that_is_no_ones_or_anothers_too_is_refused(module: ModuleType) -> None:
    twice = divided(("lstm", "net/lstm", (3, None)), ("lstm", "net/lstm/lstm_cell", (0, 3)))
    layouts = module.Layouts(expressed(twice))
    with pytest.raises(ValueError, match="belongs to no operator of the plan"):
        layouts.weight("net/dense/kernel", (4, 4))
    several = "several operators of the plan: 'net/lstm' and 'net/lstm/lstm_cell'"
    with pytest.raises(ValueError, match=several):
        layouts.weight("net/lstm/lstm_cell/kernel", (4, 8))


def test_a_weight_that_cannot_be_divided_evenly_is_refused(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("conv", "a", (0, 3)))))
    with pytest.raises(ValueError, match=r"shape \(3, 3, 4, 5\) cannot be divided evenly into 3"):
        layouts.weight("a/kernel", (3, 3, 4, 5))


def test_what_an_operator_divides_is_known(module: ModuleType) -> None:
    many = (("conv", "a", (1, None)), ("conv", "b", (0, 3)))
    layouts = module.Layouts(expressed(divided(*many)))
    assert [layouts.pixels(name) for name in "ab"] == [True, False]
    assert [layouts.learns_in_parts(f"{name}/weight") for name in "ab"] == [False, True]
    told = layouts.taken({"a/weight": False}, {"a"}, {"c/weight"})
    assert told == {
        "weights": 1,
        "divided": 0,
        "outputs": 1,
        "unknown": ["c/weight"],
        "unmet": ["b"],
    }


def test_an_output_of_other_dimensions_is_refused(module: ModuleType) -> None:
    layouts = module.Layouts(expressed(divided(("conv", "a", (0, 3)))))
    with pytest.raises(ValueError, match="the plan divides 4 dimensions"):
        layouts.output("a", (4, 8))


@given(
    axes=st.tuples(*[st.sampled_from([None, 0, 1, 2, 3])] * 2),
    shape=st.tuples(*[st.integers(1, 24)] * 4),
)
def test_every_axis_divides_one_dimension_evenly_or_none(
    module: ModuleType, axes: tuple[int | None, ...], shape: tuple[int, ...]
) -> None:
    layouts = module.Layouts(expressed(divided(("conv", "a", axes))))
    entries = layouts.output("a", shape)
    assert len(entries) == 4
    for place, entry in enumerate(entries):
        names = () if entry is None else (entry,) if isinstance(entry, str) else entry
        wanted = tuple(f"axis{n}" for n, at in enumerate(axes) if at == place)
        size = 1
        for name in wanted:
            size *= (2, 3)[int(name[-1])]
        assert names == (wanted if shape[place] % size == 0 else ())
