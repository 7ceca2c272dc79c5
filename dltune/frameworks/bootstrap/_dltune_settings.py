"""Inside the job's Python: the settings that are set there, by hooks on what the job imports.

Only the standard library is used at import. A hook must not break a job: a setting that does not
fit leaves the job unchanged, and is reported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

# beside this file
from _dltune_report import Hooks, Report, Tell


def hooks(settings: Mapping[str, str], modules: Sequence[Mapping[str, Any]], tell: Tell) -> Hooks:
    """Return modules of the job and the functions to call after their import. `settings`: names and
    values; `modules`: modules that support them (`dltune.extensions.Hook`), each with a function
    that has the setting's name."""
    reports = [Report(name, value, tell) for name, value in settings.items()]
    for report in reports:
        name = report.setting
        supporting = [module["module"] for module in modules if name in module["settings"]]
        if not supporting:
            report.left(name, "dltune's code in the job does not support this setting")
        for module in supporting:
            for imported, hook in getattr(importlib.import_module(module), name)(report):
                yield imported, report.harmless(hook, imported)
    for report in reports:
        for framework in dict.fromkeys(module["packages"][0] for module in modules):
            yield framework, report.first
