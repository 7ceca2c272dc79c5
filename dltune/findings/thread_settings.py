"""Thread settings in the words of a job's framework."""

from __future__ import annotations

from dltune.frameworks.capabilities import TENSORFLOW, Framework, framework
from dltune.schemas.diagnosis import Process


def advised(name: str | None) -> Framework:
    """Return the framework whose settings are advised: TensorFlow without advice for the job's."""
    job = framework(name)
    return job if job.thread_variables else TENSORFLOW


def intra_op_setting(name: str | None, threads: int) -> str:
    """Return the setting for this number of threads within an op."""
    variables = advised(name).thread_variables
    return next(f"{variable}={threads}" for variable, number in variables if number == "intra")


def sequential_setting(name: str | None, threads: int) -> str:
    """Return the settings for this number of threads within an op, with one op at a time."""
    variables = advised(name).thread_variables
    one_op = [f"{variable}=1" for variable, number in variables if number == "inter"]
    return " ".join([intra_op_setting(name, threads), *one_op])


def advise_intra_op(name: str | None, threads: int) -> str:
    """Return a fix such as "set 2 intra-op threads (OMP_NUM_THREADS=2)"."""
    setting = intra_op_setting(name, threads)
    return f"set {threads} intra-op thread{'s' * (threads > 1)} ({setting})"


def describe_threads(process: Process) -> str:
    """Return the threads of a process: "TensorFlow uses 4 intra-op and 2 inter-op threads"."""
    used = framework(process.framework) if process.framework else TENSORFLOW
    if used.runs_ops_in_parallel:
        return f"{used.title} uses {process.intra} intra-op and {process.inter} inter-op threads"
    return f"{used.title} uses {process.intra} threads for an op"
