"""Thread settings in the words of a job's framework."""

from __future__ import annotations

from dltune.documents.observation import Process
from dltune.frameworks.capabilities import TENSORFLOW, Framework, framework


def advised(name: str | None) -> Framework:
    """Return the framework whose settings are advised: TensorFlow without advice for the job's."""
    known = framework(name)
    return known if known.thread_variables else TENSORFLOW


def intra_op(name: str | None, threads: int) -> str:
    """Return the setting for this number of threads within an op."""
    variables = advised(name).thread_variables
    return next(f"{variable}={threads}" for variable, number in variables if number == "intra")


def one_op_at_a_time(name: str | None, threads: int) -> str:
    """Return the settings for this number of threads within an op, with one op at a time."""
    variables = advised(name).thread_variables
    alone = [f"{variable}=1" for variable, number in variables if number == "inter"]
    return " ".join([intra_op(name, threads), *alone])


def threads_of(process: Process) -> str:
    """Return the threads of a process: "TensorFlow uses 4 intra-op and 2 inter-op threads"."""
    known = framework(process.framework) if process.framework else TENSORFLOW
    if known.runs_ops_in_parallel:
        return f"{known.title} uses {process.intra} intra-op and {process.inter} inter-op threads"
    return f"{known.title} uses {process.intra} threads for an op"
