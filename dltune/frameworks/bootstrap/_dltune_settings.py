"""Inside the job's Python: the settings that are set there, by hooks on what the job imports.

Only the standard library is used at import. No hook may break a job: what does not fit is left
alone, and told.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

# beside this file
from _dltune_report import Hooks, Report, Tell


def hooks(settings: Mapping[str, str], modules: Sequence[Mapping[str, Any]], tell: Tell) -> Hooks:
    """Return what is to be done after which module's import, for `settings`: names and values.
    `modules` support them (`dltune.extensions.Hook`); each has a function with the setting's name.
    """
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
