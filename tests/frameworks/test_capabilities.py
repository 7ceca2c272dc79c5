"""Capabilities of frameworks, and the rule that no other code compares a framework's name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dltune.findings.rule import rules
from dltune.frameworks.capabilities import FRAMEWORKS, Framework, framework
from dltune.plan.settings.space import SPACE
from dltune.plan.threads.planner import FORMATS
from dltune.schemas import profile

PACKAGE = Path(__file__).parents[2] / "dltune"
# code for one framework, which names that framework
OWN = {"frameworks", "tensorflow", "pytorch", "jax", "inject"}
# files that can compare a framework's name, with the reason
ALLOWED = {
    "systems/parallelism/enforce.py": "the part of a job that reads the plan, JAX or Keras",
    "systems/parallelism/planner.py": "the part of a job that reads the plan, JAX or Keras",
}


def test_a_name_gives_the_framework() -> None:
    assert framework("pytorch").title == "PyTorch"
    assert framework("pytorch").is_eager
    assert not framework("tensorflow").is_eager


def test_an_unknown_framework_is_called_by_its_name_and_can_do_what_any_can() -> None:
    assert framework("mxnet") == Framework(name="mxnet", title="mxnet")
    assert framework(None).title == "a framework"
    assert profile.Framework("mxnet", "1.9", "", "").title == "mxnet 1.9"


def test_capabilities_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        framework("jax").is_eager = True  # type: ignore[misc]


def test_frameworks_that_documents_name_have_an_entry() -> None:
    assert profile.Framework.__doc__ is not None
    (line,) = re.findall(r"^ *`name`: (.*)\.$", profile.Framework.__doc__, re.M)
    assert re.findall(r"`(\w+)`", line) == list(FRAMEWORKS)


def test_frameworks_of_plugins_rules_and_settings_have_an_entry() -> None:
    hooks = [path.read_text() for path in PACKAGE.rglob("_dltune_*.py")]
    reported = {name for text in hooks for name in re.findall(r'"framework": "(\w+)"', text)}
    assert reported == {known.name for known in FRAMEWORKS.values() if known.library}
    assert {name for rule in rules() for name in rule.frameworks} <= FRAMEWORKS.keys()
    assert {setting.framework for setting in SPACE} - {None} <= FRAMEWORKS.keys()


def test_each_framework_with_thread_settings_has_code_for_them() -> None:
    for known in FRAMEWORKS.values():
        kind, code = known.thread_code
        assert (kind in FORMATS) is bool(known.thread_variables) is ("{intra}" in code), known.name


def names(node: ast.AST) -> bool:
    """Return True if an expression names a framework, other than as an argument of a call."""
    match node:
        case ast.Constant():
            return node.value in FRAMEWORKS
        case ast.Name():
            return node.id.isupper() and node.id.lower() in FRAMEWORKS
        case ast.Call():
            return False
    return any(map(names, ast.iter_child_nodes(node)))


def compared(tree: ast.AST) -> Iterator[int]:
    """Lines that compare a framework's name, or look something up by it."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                operands = [node.left, *node.comparators]
            case ast.Dict():
                operands = [key for key in node.keys if isinstance(key, ast.Constant)]
            case ast.MatchValue():
                operands = [node.value]
            case _:
                continue
        if any(map(names, operands)):
            yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        'x.name == "pytorch"',
        'x in ("jax", "tensorflow")',
        "framework(x) is PYTORCH",
        'TABLE = {"tensorflow": 1}',
        'match x:\n    case "jax": pass',
    ],
)
def test_comparisons_are_found(line: str) -> None:
    assert list(compared(ast.parse(line))) != []


def test_other_code_asks_for_capabilities() -> None:
    found = {}
    for source in PACKAGE.rglob("*.py"):
        path, text = source.relative_to(PACKAGE), source.read_text()
        if OWN.isdisjoint(path.parts) and any(name in text.lower() for name in FRAMEWORKS):
            found[str(path)] = [*compared(ast.parse(text))]
    found = {path: lines for path, lines in found.items() if lines}
    # a system can be left out
    assert found.keys() == {path for path in ALLOWED if (PACKAGE / path).exists()}, found
