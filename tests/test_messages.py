"""Errors for people: each says what to do, or that nothing can be done."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dltune"


def errors_without_remedy() -> Iterator[str]:
    """Name each `UsageError(...)` that passes no `remedy`, as file and line."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            passed = {keyword.arg for keyword in node.keywords}
            if getattr(node.func, "id", "") == "UsageError" and not passed & {"remedy", None}:
                yield f"{path.relative_to(PACKAGE.parent)}:{node.lineno}"


def test_every_usage_error_has_a_remedy_or_says_that_it_needs_none():
    assert [*errors_without_remedy()] == []
