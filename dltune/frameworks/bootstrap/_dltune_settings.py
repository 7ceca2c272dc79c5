"""Inside the job's Python: the settings that are set there, by hooks on what the job imports.

Only the standard library is used at import. No hook may break a job: what does not fit is left
alone, and told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

# beside this file, and in pytorch/inject
import _dltune_batch_norm
import _dltune_input
import _dltune_keras
import _dltune_torch_buckets
import _dltune_torch_loader
import _dltune_torch_optimizer
import _dltune_torch_settings
from _dltune_report import Hooks, Report, Tell

_HOOKS: dict[str, tuple[Callable[[Report], Hooks], ...]] = {
    "batch_norm": (_dltune_batch_norm.hooks,),
    "jit_compile": (_dltune_keras.jit_compile, _dltune_torch_settings.jit_compile),
    "steps_per_execution": (_dltune_keras.steps_per_execution,),
    "precision": (_dltune_keras.precision, _dltune_torch_settings.precision),
    "input_threads": (_dltune_input.threads,),
    "input_prefetch": (_dltune_input.prefetch, _dltune_torch_loader.prefetch),
    "input_workers": (_dltune_torch_loader.workers,),
    "input_order": (_dltune_input.order,),
    "channels_last": (_dltune_torch_settings.channels_last,),
    "float32_precision": (_dltune_torch_settings.float32_precision,),
    "denormals": (_dltune_torch_settings.denormals,),
    "ddp_bucket": (_dltune_torch_buckets.ddp_bucket,),
    "fused_optimizer": (_dltune_torch_optimizer.fused_optimizer,),
}


def hooks(settings: Mapping[str, str], tell: Tell) -> Hooks:
    """What is to be done after which module's import, for `settings`: hooks' names and values."""
    reports = [Report(name, value, tell) for name, value in settings.items()]
    for report in reports:
        if report.setting not in _HOOKS:
            report.left(report.setting, "dltune's code in the job does not support this setting")
            continue
        for framework in _HOOKS[report.setting]:
            for module, hook in framework(report):
                yield module, report.harmless(hook, module)
    for report in reports:
        for module in ("tensorflow", "torch"):
            yield module, report.first
