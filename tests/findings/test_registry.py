"""All rules are looked at, and what they find is told in order of its cost."""

from __future__ import annotations

from pathlib import Path

from dltune import findings
from dltune.documents.finding import Finding
from dltune.findings.registry import RULES, look, ordered
from dltune.findings.seen import Seen


def test_every_file_with_a_rule_is_looked_at():
    folder = Path(findings.__file__).parent
    files = {
        "dltune.findings." + ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.glob("*/*.py")
        if "\ndef find(seen: Seen)" in path.read_text()
    }
    assert {rule.find.__module__ for rule in RULES} == files
    assert len(RULES) == len(files)


def test_a_rule_is_named_after_its_file_and_says_what_the_reference_prints():
    for rule in RULES:
        package, _, module = rule.find.__module__.rpartition(".")
        assert (rule.group, rule.name) == (package.rpartition(".")[2], module.replace("_", "-"))
        assert rule.summary.endswith("."), rule.name
        assert rule.fix.endswith("."), rule.name


def test_nothing_is_found_where_nothing_was_looked_at():
    assert look(Seen()) == ()


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
    assert ordered([right, unknown, little, much]) == (much, little, unknown, right)


def test_shares_that_differ_by_rounding_leave_the_order_of_rules():
    first, second = (
        Finding(cause=name, title="costs", evidence="figures", fix="do better", share=share)
        for name, share in (("first", 0.3), ("second", 0.1 + 0.2))
    )
    assert ordered([first, second]) == (first, second)
