"""Limits from TOML: every key checked, all faults told, near matches named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.gate.limits import Config, Limit, load, parse


def test_all_keys(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        """
        [tool.dltune.gate]
        timed = "steps"
        build = "make"
        confidence = 0.95
        budget = 60
        undecided = "fail"
        rounds_per_launch = 4
        seconds_per_turn = 1
        timeout = 30
        hash_seed = "as-found"
        allocator = "tcmalloc"
        disturbed = "keep"
        [tool.dltune.gate.metrics]
        step_time = { ratio = 1.1 }
        peak_bytes = { ratio = 1.02, at_most = 2000000000 }
        "ops:*Conv2D*" = { ratio = 1.05 }
        plan_step_time = { at_most = 0.5, document = "plan.json" }
        io_amplification = { at_most = 2.5, document = "io.json", field = "cold.amplification" }
        """
    )
    found = load(tmp_path, None)
    assert found == Config(
        timed="steps",
        build="make",
        confidence=0.95,
        budget=60.0,
        undecided="fail",
        rounds_per_launch=4,
        seconds_per_turn=1.0,
        timeout=30.0,
        hash_seed="as-found",
        allocator="tcmalloc",
        disturbed="keep",
        limits=(
            Limit("step_time", ratio=1.1),
            Limit("peak_bytes", ratio=1.02, at_most=2e9),
            Limit("ops:*Conv2D*", ratio=1.05),
            Limit("plan_step_time", at_most=0.5, document="plan.json"),
            Limit("io_amplification", None, 2.5, "io.json", "cold.amplification"),
        ),
        source=str(tmp_path / "pyproject.toml"),
    )


def test_a_file_of_its_own_has_the_keys_at_its_top(tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    path.write_text("budget = 5\nmetrics.time = {ratio = 1.2}\n")
    assert load(tmp_path, path).limits == (Limit("time", ratio=1.2),)
    path.write_text("[tool.dltune.gate]\nbudget = 6\n")
    assert load(tmp_path, path).budget == 6


def test_without_a_configuration_the_default_is_held(tmp_path: Path) -> None:
    assert load(tmp_path, None) == Config()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load(tmp_path, None) == Config()


def test_all_faults_are_told_at_once_with_near_matches() -> None:
    with pytest.raises(UsageError) as caught:
        parse(
            {
                "budgit": 3,
                "confidence": 1.5,
                "undecided": "maybe",
                "rounds_per_launch": True,
                "metrics": {
                    "step_tim": {"ratio": 1.1},
                    "time": {"ration": 1.1},
                    "startup": {"ratio": float("nan")},
                    "page_faults": {},
                    "peak_bytes": 3,
                    "io_amplification": {"ratio": 1.1, "document": "io.json"},
                    "ops:": {"ratio": 2},
                },
            },
            "gate.toml",
        )
    told = str(caught.value)
    for fault in (
        "budgit: unknown key; did you mean budget?",
        "confidence must be a number from 0.5 to 0.9999, got 1.5",
        """undecided must be "pass", "fail", or a bound such as "pass below 5 %", got 'maybe'""",
        "rounds_per_launch must be a whole number from 1 to 10000, got True",
        "metrics.step_tim: unknown metric; did you mean step_time",
        "metrics.time.ration: unknown key; did you mean ratio?",
        "metrics.startup.ratio must be a number above 0, got nan",
        "metrics.page_faults must have ratio or at_most",
        "metrics.peak_bytes must be a table of limits, such as { ratio = 1.03 }, got 3",
        "metrics.io_amplification must have a field to read",
        "metrics.ops:: unknown metric",
    ):
        assert fault in told
    assert told.startswith("gate.toml is invalid:")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"budget = ", "is not TOML"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"tool.dltune.gate = 3", "tool.dltune.gate must be a table, got 3"),
        (b"[tool.dltune.gate]\nmetrics = 3", "metrics must be a table of metrics, got 3"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=told):
        load(tmp_path, None)


def test_a_named_file_must_be_there_and_configure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load(tmp_path, tmp_path / "none.toml")
    (tmp_path / "pyproject.toml").write_text("")
    with pytest.raises(UsageError, match=r"has no \[tool.dltune.gate\]"):
        load(tmp_path, tmp_path / "pyproject.toml")


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
            lambda inner: st.dictionaries(st.text(), inner, max_size=3) | st.lists(inner),
        ),
        max_size=4,
    )
)
def test_any_table_is_a_configuration_or_a_clear_error(table: dict[str, object]) -> None:
    for key in ("metrics", None):
        told = ""
        try:
            parse({key: table} if key else table, "x")
        except UsageError as error:
            told = str(error)
        assert told.replace("\n", "").isprintable()
