"""Capabilities of the frameworks: the reasons why dltune treats their jobs differently."""

from __future__ import annotations

from typing import Literal

import msgspec

Number = Literal["intra", "inter"]  # threads within an op, and ops at a time


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of a framework, and facts about it. The defaults are those of a framework
    that dltune does not know.

    - `name`: the name in documents; `title`: the name in sentences.
    - `library`: part of the path of a shared library that its processes have loaded; empty if
      dltune does not recognise them.
    - `attaches_on_import`: its plugin reports when the framework is imported, else at the first
      step.
    - `patience`: seconds after a job's start until dltune observes it, even if no plugin has
      reported.

    Steps:

    - `is_eager`: Python calls the ops of a step one by one, so a profile has calls and no graph.
    - `runs_ops_in_parallel`: ops of a step can run at the same time, so that the number of ops at
      a time can be set, too.
    - `recording`: duration of a step while its ops are recorded, relative to other steps: the
      largest that was seen.

    Threads of ops:

    - `uses_openmp`: ops run on the threads of an OpenMP runtime. A build without one keeps its
      thread count.
    - `sets_every_op`: dltune can set the threads of every op. Otherwise ops that can wait keep
      theirs.
    - `places_threads`: dltune can choose the cores of an op.
    - `applies_in_process`: `dltune.apply` can set the threads of ops from the job's own code.
    - `treats_denormals_as_zero`: threads that run ops flush denormal numbers.

    Measurements:

    - `counts_apart`: reading counters disturbs the times, so that ops are timed in other steps.
    - `counts_idle_threads`: counters of an op include threads that got no part of its work.
    - `counts_input_wait`: its plugin counts the seconds that eager ops wait for input.

    Ranks:

    - `exchanges_buckets`: ranks exchange gradients in buckets, without Horovod.
    - `launcher`: the launcher that gives each rank one thread unless OMP_NUM_THREADS is set.

    Names for advice; empty where dltune has no advice of its own for the framework:

    - `thread_variables`: environment variables and the number that each one takes.
    - `thread_options`: options of its configuration and the number that each one takes.
    - `thread_code`: the format of `--emit` that prints code, and the code's template.
    - `array_function`: the function that converts a NumPy array and keeps its type.
    - `default_type`: the setting of the type of new tensors.
    - `background_save`: the way to save a checkpoint in the background.
    - `validation_options`: options that make validation rarer or shorter.
    """

    name: str
    title: str
    library: str = ""
    attaches_on_import: bool = False
    patience: float = 0.0
    is_eager: bool = False
    runs_ops_in_parallel: bool = True
    recording: float = 1.0
    uses_openmp: bool = False
    sets_every_op: bool = False
    places_threads: bool = True
    applies_in_process: bool = False
    treats_denormals_as_zero: bool = True
    counts_apart: bool = False
    counts_idle_threads: bool = False
    counts_input_wait: bool = False
    exchanges_buckets: bool = False
    launcher: str = ""
    thread_variables: tuple[tuple[str, Number], ...] = ()
    thread_options: tuple[tuple[str, Number], ...] = ()
    thread_code: tuple[str, str] = ("", "")
    array_function: str = ""
    default_type: str = ""
    background_save: str = ""
    validation_options: str = ""


TENSORFLOW = Framework(
    name="tensorflow",
    title="TensorFlow",
    library="libtensorflow_framework.so",
    attaches_on_import=True,
    patience=300.0,  # the import itself, on a slow disk
    recording=1.25,  # DenseNet-121: 10,700 ops in 123 ms
    applies_in_process=True,
    counts_input_wait=True,
    thread_variables=(
        ("TF_NUM_INTRAOP_THREADS", "intra"),
        ("TF_NUM_INTEROP_THREADS", "inter"),
        ("OMP_NUM_THREADS", "intra"),
    ),
    thread_options=(
        ("intra_op_parallelism_threads", "intra"),
        ("inter_op_parallelism_threads", "inter"),
    ),
    thread_code=(
        "tf.config",
        """\
import os
import tensorflow as tf

# before the first op
os.sched_setaffinity(0, {{{numbers}}})
tf.config.threading.set_intra_op_parallelism_threads({intra})
tf.config.threading.set_inter_op_parallelism_threads({inter})
""",
    ),
    array_function="tf.constant",
    default_type="Keras' floatx",
    background_save="tf.train.CheckpointOptions: experimental_enable_async_checkpoint",
    validation_options="fit's validation_freq, validation_steps, validation_batch_size",
)
PYTORCH = Framework(
    name="pytorch",
    title="PyTorch",
    library="libtorch_cpu.so",
    patience=60.0,  # until an optimizer steps, which some jobs never have
    is_eager=True,
    runs_ops_in_parallel=False,
    recording=1.03,  # a small convolution
    uses_openmp=True,
    sets_every_op=True,
    places_threads=False,
    treats_denormals_as_zero=False,
    counts_apart=True,
    counts_idle_threads=True,
    exchanges_buckets=True,
    launcher="torchrun",
    thread_variables=(("OMP_NUM_THREADS", "intra"),),
    thread_options=(("num_threads", "intra"),),
    thread_code=(
        "torch",
        """\
import os

os.sched_setaffinity(0, {{{numbers}}})  # before the import: torch counts the CPUs there

import torch

torch.set_num_threads({intra})
""",
    ),
    array_function="torch.from_numpy",
    default_type="torch.set_default_dtype",
    background_save="torch.distributed.checkpoint.async_save",
)
JAX = Framework(name="jax", title="JAX")

FRAMEWORKS = {known.name: known for known in (TENSORFLOW, PYTORCH, JAX)}
UNKNOWN = Framework(name="", title="a framework")


def framework(name: str | None) -> Framework:
    """Return the framework that documents call `name`. An unknown name has the default capabilities
    and is its own title; without a name the title is "a framework"."""
    if name is None:
        return UNKNOWN
    return FRAMEWORKS.get(name) or Framework(name=name, title=name)
