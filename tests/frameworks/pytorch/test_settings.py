"""Settings inside unmodified PyTorch jobs: what they change, what they leave, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hooked import JOBS, told
from torches import TORCH_PYTHON, computes, needs_torch

from dltune.job import protocol

pytestmark = [pytest.mark.tensorflow, needs_torch]

SCRIPT = JOBS / "torch_settings.py"
OPTIMIZERS = JOBS / "torch_optimizers.py"


def ran(
    folder: Path, settings: dict[str, str], *arguments: str
) -> tuple[dict[str, Any], dict[str, protocol.Setting]]:
    heard = told(SCRIPT, settings, *arguments, python=TORCH_PYTHON)
    return json.loads((folder / "found.json").read_text()), heard


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("plain")
    computes(folder, SCRIPT)
    return dict(json.loads((folder / "found.json").read_text()))


def test_convolutions_have_their_channels_last_from_the_second_step(plain, tmp_path):
    assert plain["layouts"] == [False] * 6
    found, heard = ran(tmp_path, {"channels_last": "on"})
    assert found["layouts"] == [False] + [True] * 5
    assert found["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    assert found["losses"][0] == plain["losses"][0]
    assert found["state"]
    assert found["same"]
    said = heard["channels_last"]
    assert (said.count, said.did) == (2, "2 convolutions use the channels-last layout")
    assert said.left == ["ParametrizedConv2d: its weight is computed from other tensors"]


def test_memory_that_the_script_has_of_a_weight_stays_the_weights(plain, tmp_path):
    found, heard = ran(tmp_path, {"channels_last": "on"}, "--kept")
    assert found["kept"]
    assert heard["channels_last"].count == 1
    assert "Conv2d: it shares its weight with another module" in heard["channels_last"].left
    assert found["losses"] == pytest.approx(plain["losses"], rel=1e-4)


def test_a_view_that_channels_last_does_not_allow(tmp_path):
    folded, nothing = ran(tmp_path, {}, "--view", "folded")
    assert nothing == {}
    found, heard = ran(tmp_path, {"channels_last": "on"}, "--view", "folded")
    # the second step meets it, and the third one is as ever
    assert found["layouts"] == [False, True, False, False, False, False]
    assert found["contiguous"]
    assert found["losses"] == pytest.approx(folded["losses"], rel=1e-4)
    assert heard["channels_last"].left[-1] == (
        "all convolutions from now on: the script takes views of outputs"
    )


def test_numbers_of_less_precision(plain, tmp_path):
    assert (plain["output"], plain["tiny"] > 0) == ("torch.float32", True)
    found, heard = ran(tmp_path, {"precision": "mixed_bfloat16", "denormals": "flushed"})
    assert found["output"] == "torch.bfloat16"
    assert found["losses"] == pytest.approx(plain["losses"], rel=0.1)
    assert found["losses"] != plain["losses"]
    assert found["tiny"] == 0.0
    assert {name: said.count for name, said in heard.items()} == {"precision": 1, "denormals": 1}


def test_products_in_bfloat16_leave_types_alone(tmp_path):
    found, heard = ran(tmp_path, {"float32_precision": "bf16"})
    assert found["output"] == "torch.float32"
    assert heard["float32_precision"].count == 1


def test_a_module_is_compiled_and_computes_the_same(tmp_path):
    computes(tmp_path, SCRIPT, "--dropout", 0.5)
    plain = json.loads((tmp_path / "found.json").read_text())
    found, heard = ran(tmp_path, {"jit_compile": "on", "channels_last": "on"}, "--dropout", "0.5")
    said = heard["jit_compile"]
    assert (said.count, said.did) == (1, "1 modules are compiled by torch.compile")
    assert found["losses"] == pytest.approx(plain["losses"], rel=1e-3)
    assert (plain["compiled"], found["compiled"] > 0) == (0, True)


@pytest.mark.parametrize("passes", [(), ("--closure",)])
def test_what_is_differentiated_twice_is_left_as_it_is(tmp_path, passes):
    found, heard = ran(tmp_path, {"jit_compile": "on"}, "--twice", *passes)
    assert found["compiled"] == 0
    assert heard["jit_compile"].left == [
        "the model: the script computes second derivatives, which torch.compile does not support"
    ]


def test_what_the_script_compiles_is_left_to_it(tmp_path):
    _, heard = ran(tmp_path, {"jit_compile": "on"}, "--compiled")
    assert heard["jit_compile"].count == 0
    assert heard["jit_compile"].left == ["the model: the script already uses torch.compile"]


def test_optimizers_update_all_by_one_op_and_save_what_they_were_told(tmp_path):
    computes(tmp_path, OPTIMIZERS)
    plain = json.loads((tmp_path / "found.json").read_text())
    heard = told(OPTIMIZERS, {"fused_optimizer": "on"}, python=TORCH_PYTHON)
    changed = json.loads((tmp_path / "found.json").read_text())
    assert {name for name, one in changed.items() if any(one["fused"])} == {
        *("Adam", "AdamW", "SGD", "Adagrad", "Adam given a closure", "Adam in float64"),
        "SGD with gradients that come later",
        "SGD given a closure with gradients that come later",
    }
    late = changed["SGD with gradients that come later"]["fused"]
    assert late == [True, True, None, True, True], "momentum is made for all or none"
    late = changed["SGD given a closure with gradients that come later"]["fused"]
    assert late == [*[None] * 3, *[True] * 3]
    # of a closure the first step shows what gradients there are
    assert changed["Adam given a closure"]["fused"] == [None, *[True] * 5]
    for name, one in changed.items():
        assert one["saved"] is plain[name]["saved"] is None
        assert one["losses"] == pytest.approx(plain[name]["losses"], rel=1e-5)
        assert one["losses"] == plain[name]["losses"] or any(one["fused"])
    said = heard["fused_optimizer"]
    assert (said.count, said.did) == (9, "9 parameter groups are updated by one fused op each")
    assert said.left == [
        "RMSprop: only SGD, Adam, AdamW, Adagrad have a fused op",
        "a group: the script sets fused or foreach itself",
        "SGD: it has sparse gradients",
        "a group: gradients or state have a different memory layout than the parameters",
        "a group: a tensor is a view of another tensor",
    ]
