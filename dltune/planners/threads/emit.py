"""What a plain job can use without dltune: the best uniform setting, and the CPUs to run on."""

from __future__ import annotations

from dltune.documents.machine import Machine
from dltune.documents.plan import Uniform
from dltune.machine import cpulist

FORMATS = ("env", "tf.config", "yaml")


def emit(kind: str, setting: Uniform, machine: Machine) -> str:
    """The setting in one of FORMATS. Raises KeyError for another."""
    cpus = cpulist.show(core.cpus[0] for core in machine.cores)
    return {"env": _env, "tf.config": _config, "yaml": _yaml}[kind](setting, cpus)


def _env(setting: Uniform, cpus: str) -> str:
    return (
        f"export TF_NUM_INTRAOP_THREADS={setting.intra}\n"
        f"export TF_NUM_INTEROP_THREADS={setting.inter}\n"
        f"export OMP_NUM_THREADS={setting.intra}\n"
        f"# and start the job on these CPUs: taskset -c {cpus} python ...\n"
    )


def _config(setting: Uniform, cpus: str) -> str:
    return (
        "import os\n"
        "import tensorflow as tf\n\n"
        "# before the first op\n"
        f"os.sched_setaffinity(0, {_set(cpus)})\n"
        f"tf.config.threading.set_intra_op_parallelism_threads({setting.intra})\n"
        f"tf.config.threading.set_inter_op_parallelism_threads({setting.inter})\n"
    )


def _set(cpus: str) -> str:
    return "{" + ", ".join(map(str, sorted(cpulist.parse(cpus)))) + "}"


def _yaml(setting: Uniform, cpus: str) -> str:
    return (
        "tensorflow:\n"
        f"  intra_op_parallelism_threads: {setting.intra}\n"
        f"  inter_op_parallelism_threads: {setting.inter}\n"
        "environment:\n"
        f'  TF_NUM_INTRAOP_THREADS: "{setting.intra}"\n'
        f'  TF_NUM_INTEROP_THREADS: "{setting.inter}"\n'
        f'  OMP_NUM_THREADS: "{setting.intra}"\n'
        "launcher:\n"
        f'  cpus: "{cpus}"\n'
    )
