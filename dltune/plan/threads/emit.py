"""What a plain job can use without dltune: the best uniform setting, and the CPUs to run on."""

from __future__ import annotations

from dltune.base.errors import UsageError
from dltune.frameworks.capabilities import FRAMEWORKS, Framework, framework
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.system import kernel_files


def _templates(known: Framework) -> dict[str, str]:
    """Return templates by format; none if jobs of this framework cannot set their threads."""
    if not known.thread_variables:
        return {}
    exports = "".join(f"export {name}={{{number}}}\n" for name, number in known.thread_variables)
    values = "".join(f'  {name}: "{{{number}}}"\n' for name, number in known.thread_variables)
    options = "".join(f"  {name}: {{{number}}}\n" for name, number in known.thread_options)
    kind, code = known.thread_code
    return {
        "env": f"{exports}# then start the job on these CPUs: taskset -c {{cpus}} python ...\n",
        kind: code,
        "yaml": f'{known.name}:\n{options}environment:\n{values}launcher:\n  cpus: "{{cpus}}"\n',
    }


FORMATS = tuple(dict.fromkeys(kind for known in FRAMEWORKS.values() for kind in _templates(known)))


def emit(kind: str, name: str, setting: Uniform, machine: Machine) -> str:
    """Return the setting in one of FORMATS, for a job of the framework `name`.

    Raises UsageError for a format that is another framework's.
    """
    known = framework(name)
    templates = _templates(known)
    if kind not in templates:
        raise UsageError(
            f"--emit {kind} does not apply to a job of {known.title}",
            remedy=f"use --emit {' or '.join(templates)}" if templates else "leave out --emit",
        )
    cpus = sorted(core.cpus[0] for core in machine.cores)
    return templates[kind].format(
        intra=setting.intra,
        inter=setting.inter,
        cpus=kernel_files.format_cpulist(cpus),
        numbers=", ".join(map(str, cpus)),
    )
