"""The registry finds all rules, and orders findings by cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dltune
from dltune import extensions
from dltune.extensions import Extension
from dltune.findings.evidence import Evidence
from dltune.findings.rule import apply_rules, rules, sort_by_cost
from dltune.schemas.diagnosis import Finding

PACKAGE = Path(dltune.__file__).parent


def test_every_file_with_a_rule_is_looked_at():
    files = {
        ".".join(("dltune", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in PACKAGE.glob("**/findings/**/*.py")
        if "\n@rule(" in path.read_text()
    }
    assert {rule.find.__module__ for rule in rules()} == files
    marks = sum(path.read_text().count("\n@rule(") for path in PACKAGE.glob("**/findings/**/*.py"))
    assert len(rules()) == marks


def test_a_rule_is_named_after_its_function_and_says_what_the_reference_prints():
    for rule in rules():
        assert rule.name == rule.find.__name__.replace("_", "-")
        homes = (f"dltune.findings.{rule.group}", f"dltune.systems.{rule.group}.findings")
        assert rule.find.__module__.startswith(homes)
        assert rule.summary.endswith("."), rule.name
        assert rule.fix.endswith("."), rule.name


def test_nothing_is_found_where_nothing_was_looked_at():
    assert apply_rules(Evidence()) == ()


def test_the_most_costly_comes_first_and_what_is_right_last():
    right = Finding(cause="right", title="all is well", evidence="0 of them")
    unknown = Finding(
        cause="unknown", title="costs what nobody knows", evidence="3 of them", fix="do better"
    )
    little, much = (
        Finding(
            cause=f"costs-{share}", title="costs", evidence="figures", fix="do better", share=share
        )
        for share in (0.1, 0.4)
    )
    assert sort_by_cost([right, unknown, little, much]) == (much, little, unknown, right)


def test_shares_that_differ_by_rounding_leave_the_order_of_rules():
    first, second = (
        Finding(cause=name, title="costs", evidence="figures", fix="do better", share=share)
        for name, share in (("first", 0.3), ("second", 0.1 + 0.2))
    )
    assert sort_by_cost([first, second]) == (first, second)


@pytest.mark.parametrize(
    "causes",
    [
        # the kernel's share of the CPU time
        ("memory-pressure", "allocator-trim"),
        # the wait of threads for one another
        ("narrow-affinity", "crowded-processes", "too-many-threads"),
        # samples of the job's own Python code
        ("denormals", "between-ops"),
        # the wait for storage, and for data that come from it
        (
            *("slow-store", "python-input", "shared-pages", "amplified-reading"),
            *("missing-read-ahead", "shuffled-reading", "small-reads", "many-sleeps"),
        ),
        ("slow-store", "input-wait", "shared-pages"),
        # a cost of zero
        ("batch-norm-in-pieces", "small-ops"),
        # unknown costs
        (
            *("growing-memory", "threads-over-quota"),
            *("queued-threads", "no-data-file", "reading-at-rest", "unhinted-shuffle"),
            *("exact-offsets", "mapped-reading", "more-readers", "shuffled-read-ahead"),
            *("block-size", "passed-records", "small-ops"),
        ),
    ],
)
def test_rules_whose_findings_can_cost_the_same_have_a_fixed_order(causes: tuple[str, ...]):
    order = [rule.name for rule in rules()]
    positions = [order.index(cause) for cause in causes]
    assert all(earlier < later for earlier, later in itertools.pairwise(positions))


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that registers rules of another package during the test."""

    def add(name: str) -> None:
        others = (*extensions.extensions(), Extension(name="other", rules=(name,)))
        monkeypatch.setattr(extensions, "extensions", lambda: others)
        rules.cache_clear()

    yield add
    rules.cache_clear()


def test_other_packages_can_add_rules(
    register: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "dltune_other_rules"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "hot_cpu.py").write_text(
        "from dltune.schemas.diagnosis import Finding\n"
        "from dltune.findings.rule import rule\n\n"
        "@rule('hot-cpu', 'cores', summary='The CPU is hot.', fix='Cool it.', order=1)\n"
        "def find(evidence):\n"
        "    yield Finding(title='the CPU is hot', evidence='95 degrees')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = [rule.name for rule in rules()]
    register("dltune_other_rules")
    assert [finding.cause for finding in apply_rules(Evidence())] == ["hot-cpu"]
    names = [rule.name for rule in rules()]
    assert names[names.index("hot-cpu") - 1] == "crowded-processes"
    assert [name for name in names if name != "hot-cpu"] == own


def test_rules_that_cannot_be_imported_leave_the_others(
    register: Callable[[str], None], caplog: pytest.LogCaptureFixture
):
    own = rules()
    register("dltune_missing_rules")
    assert rules() == own
    assert "the rules of the extension 'other' cannot be loaded" in caplog.text
    assert "No module named 'dltune_missing_rules'" in caplog.text
