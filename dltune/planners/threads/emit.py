"""What a plain job can use without dltune: the best uniform setting, and the CPUs to run on."""

from __future__ import annotations

from dltune.documents.machine import Machine
from dltune.documents.sections.threads import Uniform
from dltune.machine import cpulist

_TEMPLATES = {
    "env": """\
export TF_NUM_INTRAOP_THREADS={intra}
export TF_NUM_INTEROP_THREADS={inter}
export OMP_NUM_THREADS={intra}
# and start the job on these CPUs: taskset -c {cpus} python ...
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
}
FORMATS = tuple(_TEMPLATES)


def emit(kind: str, setting: Uniform, machine: Machine) -> str:
    """The setting in one of FORMATS. Raises KeyError for another."""
    cpus = sorted(core.cpus[0] for core in machine.cores)
    return _TEMPLATES[kind].format(
        intra=setting.intra,
        inter=setting.inter,
        cpus=cpulist.show(cpus),
        numbers=", ".join(map(str, cpus)),
    )
