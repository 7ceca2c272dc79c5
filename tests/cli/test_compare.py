"""`dltune compare` as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).parents[1] / "report"))

import exhibits

from dltune.cli import compare
from dltune.compare.change import Change


def dltune(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "compare", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    a = exhibits.profile(layers=8)
    ops = tuple(
        msgspec.structs.replace(
            op,
            key=op.key + "\x1b[2J\u202e",
            times=tuple(
                msgspec.structs.replace(t, min=t.min * 2, median=t.median * 2) for t in op.times
            ),
        )
        if op.type == "Conv2D"
        else op
        for op in a.ops
    )
    evil = tuple(
        msgspec.structs.replace(op, key=f"{op.key}\x1b[2J\u202e") if op.type == "Conv2D" else op
        for op in a.ops
    )
    b = msgspec.structs.replace(a, ops=ops, dltune="9", command=("python", "other.py"))
    plan = exhibits.plan(a)
    bench = exhibits.bench(plan, a, {"recommended": [0.1] * 6, "plan": [0.09] * 6})
    documents = {"a": msgspec.structs.replace(a, ops=evil), "b": b, "plan": plan, "bench": bench}
    for name, document in documents.items():
        (tmp_path / name).write_bytes(msgspec.json.encode(document))
    return {name: tmp_path / name for name in documents}


def test_circumstances_first_then_the_largest_change(files: dict[str, Path]) -> None:
    done = dltune(files["a"], files["b"])
    assert done.returncode == 0, done.stderr
    told = done.stdout
    assert told.startswith("differences between A and B")
    assert told.index("other.py") < told.index("steps: wall time") < told.index("ops, largest")
    assert "8 slower, 0 faster" in told
    first = next(line for line in told.splitlines() if line.startswith("Conv2D#"))
    assert "2.000" in first
    assert "slower" in first
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert "\\x1b[2J\\u202e" in told


def test_json_has_all_ops(files: dict[str, Path]) -> None:
    done = dltune(files["a"], files["b"], "--json", "--top", "1")
    found = json.loads(done.stdout)
    assert [d["what"] for d in found["circumstances"]] == ["dltune", "command"]
    assert sum(op["verdict"] == "slower" for op in found["ops"]) == 8
    assert found["ops"][0]["change"]["ratio"] == pytest.approx(2.0)


def test_benches(files: dict[str, Path]) -> None:
    done = dltune(files["bench"], files["bench"])
    assert done.returncode == 0, done.stderr
    assert "same machine, versions, settings and command" in done.stdout
    assert "divided by that of recommended in the same round" in done.stdout


def test_nothing_measured_is_nothing_to_compare(files: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a", "bench"):
        document = json.loads(files[name].read_text())
        if name == "a":
            document.update(ops=[], steps=[])
        else:
            document["partial"] = "the job ended"
            for setting in document["settings"]:
                setting.update(turns=[], summary=None)
        empty = tmp_path / f"{name}.json"
        empty.write_text(json.dumps(document))
        for pair in ((files[name], empty), (empty, files[name])):
            done = dltune(*pair)
            assert done.returncode == 2, done.stderr
            assert f"{empty} contains no measurements" in done.stderr
            assert ("(the job ended)" in done.stderr) == (name == "bench")


def test_mixed_kinds(files: dict[str, Path]) -> None:
    for a, b in (("a", "bench"), ("bench", "a"), ("plan", "plan"), ("a", "plan")):
        done = dltune(files[a], files[b])
        assert done.returncode == 2
        assert done.stdout == ""
        assert "Traceback" not in done.stderr


def test_an_interval_that_goes_far_is_not_told_by_its_digits() -> None:
    assert compare._change(Change(1.0, 2.0, 2.0, 0.5, 1e57))[3] == "0.500 to over 1000"
