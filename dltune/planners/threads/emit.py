"""What a plain job can use without dltune: the best uniform setting, and the CPUs to run on."""

from __future__ import annotations

from collections.abc import Mapping

from dltune.documents.machine import Machine
from dltune.documents.profile import TITLES
from dltune.documents.sections.threads import Uniform
from dltune.errors import UsageError
from dltune.machine import cpulist

# by framework, then by format
_TEMPLATES: Mapping[str, Mapping[str, str]] = {
    "tensorflow": {
        "env": """\
export TF_NUM_INTRAOP_THREADS={intra}
export TF_NUM_INTEROP_THREADS={inter}
export OMP_NUM_THREADS={intra}
# then start the job on these CPUs: taskset -c {cpus} python ...
""",
        "tf.config": """\
import os
import tensorflow as tf

# before the first op
os.sched_setaffinity(0, {{{numbers}}})
tf.config.threading.set_intra_op_parallelism_threads({intra})
tf.config.threading.set_inter_op_parallelism_threads({inter})
""",
        "yaml": """\
tensorflow:
  intra_op_parallelism_threads: {intra}
  inter_op_parallelism_threads: {inter}
environment:
  TF_NUM_INTRAOP_THREADS: "{intra}"
  TF_NUM_INTEROP_THREADS: "{inter}"
  OMP_NUM_THREADS: "{intra}"
launcher:
  cpus: "{cpus}"
""",
    },
    "pytorch": {
        "env": """\
export OMP_NUM_THREADS={intra}
# then start the job on these CPUs: taskset -c {cpus} python ...
""",
        "torch": """\
import os

os.sched_setaffinity(0, {{{numbers}}})  # before the import: torch counts the CPUs there

import torch

torch.set_num_threads({intra})
""",
        "yaml": """\
pytorch:
  num_threads: {intra}
environment:
  OMP_NUM_THREADS: "{intra}"
launcher:
  cpus: "{cpus}"
""",
    },
}
FORMATS = tuple(dict.fromkeys(kind for formats in _TEMPLATES.values() for kind in formats))


def emit(kind: str, framework: str, setting: Uniform, machine: Machine) -> str:
    """The setting in one of FORMATS. Raises UsageError for one that is another framework's."""
    templates = _TEMPLATES.get(framework, {})
    if kind not in templates:
        raise UsageError(
            f"--emit {kind} does not apply to a job of {TITLES.get(framework, framework)}",
            remedy=f"use --emit {' or '.join(templates)}" if templates else "leave out --emit",
        )
    cpus = sorted(core.cpus[0] for core in machine.cores)
    return templates[kind].format(
        intra=setting.intra,
        inter=setting.inter,
        cpus=cpulist.show(cpus),
        numbers=", ".join(map(str, cpus)),
    )
