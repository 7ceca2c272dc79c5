"""The page of the public Python interface, from the docstrings of what it names."""

from __future__ import annotations

import importlib
import inspect
import re

from dltune.base.documents import Bound
from pages.markdown import bullet, code, escaped, paragraph

# what other packages and scripts can rely on, by module
PUBLIC = {
    "dltune": ("apply", "frame"),
    "dltune.base.errors": ("DltuneError", "JobFailed", "UsageError"),
    "dltune.extensions": ("Extension", "Command", "DocumentKind", "Hook"),
    "dltune.plan.planner": ("Planner", "Decision", "Enforcement", "Outcome", "Run"),
    "dltune.plan.settings.setting": ("Setting", "Means"),
    "dltune.findings.rule": ("rule",),
    "dltune.findings.evidence": ("Evidence",),
    "dltune.watch.job_watch": ("Probe",),
    "dltune.frameworks.capabilities": ("Framework",),
    "dltune.views": ("View", "Section", "Headline", "Context", "on_page"),
    "dltune.base.formatting": ("Table", "columns"),
    "dltune.base.documents": (
        *("reader", "read", "struct_faults", "Bound"),
        *("at_least", "at_most", "above", "between", "one_of"),
        *("AMOUNT", "POSITIVE", "SHARE", "FILLED"),
    ),
    "dltune.system.topology": ("local",),
}
_INTRODUCTION = """
Scripts and other packages can rely on the names on this page, and on the [document
formats](formats/index.md) with their structs in `dltune.schemas`. Every other name in the package
is private and can change in any version. [Extensions](../explanation/planners.md) explains how a
package adds commands, planners, rules, kinds of documents, probes and settings.
"""


def pages() -> dict[str, str]:
    parts = ["# Python interface", paragraph(_INTRODUCTION)]
    for module, names in PUBLIC.items():
        parts += [f"## {module}", "\n".join(bullet(_line(module, name)) for name in names)]
    return {"python.md": "\n\n".join(parts)}


def _line(module: str, name: str) -> str:
    found = getattr(importlib.import_module(module), name)
    if isinstance(found, Bound):
        sentence = found.sentence.partition(", got")[0].format(words=found.words)
        return f"{code(name)}: The bound of a field that{sentence}."
    first, *_ = re.split(r"(?<=\.)\s", inspect.getdoc(found) or "", maxsplit=1)
    assert first, f"{module}.{name} has no docstring"
    return f"{code(name)}: {escaped(first)}"
