"""The model's file: what is written is read again, and nothing else is."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import profile_lawful as made
import pytest
from skops import io as skops

from dltune.base.errors import UsageError
from dltune.simulate import regression_file
from dltune.simulate.regression import Regression, train

PROFILE = made.profile(seed=1)


def written(folder: Path, regressor: str = "decision tree") -> Path:
    trained = train([PROFILE], made.MACHINE, regressor=regressor, samples=2, logarithms=True)
    path = folder / "model"
    path.write_bytes(regression_file.encode(trained, [PROFILE]))
    return path


def changed(path: Path, **changes: object) -> Path:
    """The same file with another header."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    header = msgspec.json.decode(parts["dltune.json"])
    parts["dltune.json"] = msgspec.json.encode({**header, **changes})
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("regressor", made.REGRESSORS)
def test_what_is_written_predicts_the_same(tmp_path, regressor):
    trained = train([PROFILE], made.MACHINE, regressor=regressor, samples=2, logarithms=True)
    path = tmp_path / "model"
    path.write_bytes(regression_file.encode(trained, [PROFILE]))
    header, again = regression_file.load(path)
    assert header.features == trained.layout.names
    assert header.fingerprint == made.MACHINE.fingerprint
    test = made.profile(seed=3)
    assert Regression.on(again, test) == Regression.on(trained, test)


@pytest.mark.parametrize("data", [b"", b"{}", b"PK\x03\x04", pickle.dumps(1)])
def test_what_is_no_model_is_refused(tmp_path, data):
    path = tmp_path / "model"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="is not a regression model of dltune") as told:
        regression_file.load(path)
    assert "dltune model train" in (told.value.remedy or "")


def test_a_pickle_inside_is_not_executed(tmp_path):
    class Hostile:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "owned",))

    path = written(tmp_path)
    with zipfile.ZipFile(path) as archive:
        header = archive.read("dltune.json")
    buffer = io.BytesIO(skops.dumps([np.frombuffer, Path.touch]))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("dltune.json", header)
        archive.writestr("data.pkl", pickle.dumps(Hostile()))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(UsageError, match=r"contains types that dltune does not load|is damaged"):
        regression_file.load(path)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dltune": "0.0.1"}, "was trained with dltune 0.0.1"),
        ({"sklearn": "1.0"}, "was trained with scikit-learn 1.0"),
        ({"schema": "dltune.regression/9"}, "has schema 'dltune.regression/9'"),
        ({"schema": "dltune.profile/1"}, "is a dltune.profile file"),
        ({"features": ["speed"]}, "do not match its header"),
        ({"regressor": "k-neighbours"}, "do not match its header"),
        ({"cases": []}, "do not match its header"),
    ],
)
def test_another_version_or_a_changed_header(tmp_path, changes, told):
    with pytest.raises(UsageError, match=told):
        regression_file.load(changed(written(tmp_path), **changes))


@pytest.mark.parametrize("part", ["left_child", "right_child", "feature"])
@pytest.mark.parametrize("value", [10**6, -7, 0])
def test_a_tree_that_leads_elsewhere_is_refused(tmp_path, part, value):
    """scikit-learn would follow it out of its arrays; 0 makes a child its own ancestor."""
    trained = train([PROFILE], made.MACHINE, regressor="decision tree", samples=2)
    for model in trained.models.values():
        tree = model.regressor.tree_
        state = tree.__getstate__()
        state["nodes"][part][0] = value
        if part == "feature" and value == 0:
            state["nodes"]["left_child"][0] = 0
        tree.__setstate__(state)
    path = tmp_path / "model"
    path.write_bytes(regression_file.encode(trained, [PROFILE]))
    with pytest.raises(UsageError, match="do not match its header"):
        regression_file.load(path)


def test_another_machine_or_tensorflow(tmp_path):
    path = written(tmp_path)
    header, _ = regression_file.load(path)
    regression_file.require_fits(header, PROFILE, path, Path("p.json"))
    elsewhere = msgspec.structs.replace(
        PROFILE, machine=msgspec.structs.replace(PROFILE.machine, name="other")
    )
    with pytest.raises(UsageError, match=r"p\.json was measured on other .* trained on synthetic"):
        regression_file.require_fits(header, elsewhere, path, Path("p.json"))
    build = msgspec.structs.replace(PROFILE.framework, version="2.16.2")
    older = msgspec.structs.replace(PROFILE, framework=build)
    with pytest.raises(UsageError, match=r"with TensorFlow 2\.16\.2"):
        regression_file.require_fits(header, older, path, Path("p.json"))
    with pytest.raises(UsageError, match=r"a\.json"):
        regression_file.require_same([PROFILE, older], [Path("a.json"), Path("b.json")])
